#include "parallel/data_parallel/buckets.h"

#include <algorithm>

#include "parallel/base/check.h"

namespace headroom::data_parallel {
namespace {

// At yolov5s' width the first two convolutions: less than one Gloo latency.
constexpr int64_t kStemBytes = 64 << 10;

// How many of the first slots stay for the last bucket.
int64_t num_stem_slots(const std::vector<FlatBuffer::Slot>& slots,
                       int64_t max_elements) {
  int64_t count = 1;
  while (count < static_cast<int64_t>(slots.size()) &&
         slots[count].offset + slots[count].size <= max_elements) {
    ++count;
  }
  return count;
}

}  // namespace

std::vector<Bucket> carve_buckets(const std::vector<FlatBuffer::Slot>& slots,
                                  int64_t flat_buffer_size,
                                  int64_t element_size, int64_t bucket_bytes) {
  HEADROOM_CHECK(element_size > 0 && bucket_bytes > 0, "no positive size");
  if (slots.empty()) return {};
  const int64_t bucket_elements =
      std::max<int64_t>(1, bucket_bytes / element_size);
  const int64_t stem_slots =
      num_stem_slots(slots, std::min(kStemBytes, bucket_bytes) / element_size);

  std::vector<Bucket> buckets;
  const auto close = [&](int64_t first, int64_t last, int64_t end) {
    const int64_t offset = slots[first].offset;
    buckets.push_back({first, last, offset, end - offset});
    return offset;
  };
  int64_t last = static_cast<int64_t>(slots.size());
  int64_t end = flat_buffer_size;
  for (int64_t slot = last - 1; slot >= stem_slots; --slot) {
    if (end - slots[slot].offset >= bucket_elements || slot == stem_slots) {
      end = close(slot, last, end);
      last = slot;
    }
  }
  close(0, last, end);
  return buckets;
}

}  // namespace headroom::data_parallel
