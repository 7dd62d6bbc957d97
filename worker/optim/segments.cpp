#include "worker/optim/segments.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <string>

#include "parallel/base/check.h"

namespace headroom::optim {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements; three arrays of it fit in L2

void check_segments(std::span<const Segment> segments, int64_t size) {
  int64_t end = 0;
  for (const Segment& segment : segments) {
    HEADROOM_CHECK(segment.offset >= end && segment.size >= 0 &&
                       segment.offset + segment.size <= size &&
                       segment.group >= 0 &&
                       segment.group < kNumParameterGroups,
                   "segment at " + std::to_string(segment.offset) +
                       " of size " + std::to_string(segment.size) + ", group " +
                       std::to_string(segment.group) +
                       "; the one before ends at " + std::to_string(end) +
                       ", the flat buffer at " + std::to_string(size));
    end = segment.offset + segment.size;
  }
}

}  // namespace

void for_each_range(
    std::span<const Segment> segments, int64_t size,
    const AllGroupSettings& groups,
    const std::function<void(int64_t, int64_t, const GroupSettings&)>& update) {
  check_segments(segments, size);
  at::parallel_for(0, size, kGrain, [&](int64_t begin, int64_t end) {
    auto segment = std::partition_point(
        segments.begin(), segments.end(),
        [begin](const Segment& s) { return s.offset + s.size <= begin; });
    for (; segment != segments.end() && segment->offset < end; ++segment) {
      update(std::max(begin, segment->offset),
             std::min(end, segment->offset + segment->size),
             groups[static_cast<size_t>(segment->group)]);
    }
  });
}

}  // namespace headroom::optim
