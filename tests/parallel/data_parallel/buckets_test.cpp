#include "parallel/data_parallel/gradient_reducer.h"

#include <gtest/gtest.h>

#include "parallel/base/check.h"
#include "parallel/plan/exchange_sizes.h"

namespace headroom::data_parallel {
namespace {

std::vector<FlatBuffer::Slot> slots_of(const std::vector<int64_t>& sizes) {
  std::vector<FlatBuffer::Slot> slots;
  int64_t offset = 0;
  for (const int64_t size : sizes) {
    slots.push_back({"slot " + std::to_string(slots.size()), offset, size, 0});
    offset += (size + 15) / 16 * 16;
  }
  return slots;
}

int64_t end_of(const std::vector<FlatBuffer::Slot>& slots) {
  return (slots.back().offset + slots.back().size + 15) / 16 * 16;
}

TEST(BucketsTest, AreCarvedFromTheEnd) {
  const auto slots = slots_of({16, 160, 160, 160, 320});
  EXPECT_EQ(carve_buckets(slots, 816, 4, 4 * 300),
            (std::vector<Bucket>{
                {4, 5, 496, 320}, {2, 4, 176, 320}, {0, 2, 0, 176}}));
  // No bucket is larger than requested, not even that of the stem.
  EXPECT_EQ(carve_buckets(slots, 816, 4, 4 * 100),
            (std::vector<Bucket>{{4, 5, 496, 320},
                                 {3, 4, 336, 160},
                                 {2, 3, 176, 160},
                                 {1, 2, 16, 160},
                                 {0, 1, 0, 16}}));
}

TEST(BucketsTest, AllOfASmallModelIsOneBucket) {
  EXPECT_EQ(carve_buckets(slots_of({3, 5, 40}), 80, 4, 4 << 20),
            (std::vector<Bucket>{{0, 3, 0, 80}}));
  EXPECT_EQ(carve_buckets(slots_of({7}), 16, 8, 1),
            (std::vector<Bucket>{{0, 1, 0, 16}}));
  EXPECT_TRUE(carve_buckets({}, 0, 4, 1024).empty());
}

// yolov5s has 29 MB of gradients, yolov5l 186, yolov5x 347.
TEST(BucketsTest, AreLargerForLargerModels) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(plan::bucket_bytes(0), 4 * kMiB);
  EXPECT_EQ(plan::bucket_bytes(28'900'000), 4 * kMiB);
  EXPECT_EQ(plan::bucket_bytes(32 * kMiB + 1), 16 * kMiB);
  EXPECT_EQ(plan::bucket_bytes(186'000'000), 23'250'000);
  EXPECT_EQ(plan::bucket_bytes(347'000'000), 32 * kMiB);
}

TEST(BucketsTest, TheStemTravelsInASmallLastOne) {
  // Five layers of 2 MiB come after a stem of 8 KiB.
  const auto slots =
      slots_of({2000, 48, 500000, 500000, 500000, 500000, 500000});
  const auto buckets = carve_buckets(slots, end_of(slots), 4, 4 << 20);
  EXPECT_EQ(buckets.back().offset, 0);
  EXPECT_EQ(buckets.back().last_slot, 2);
  EXPECT_LE(buckets.back().size * 4, 64 << 10);
}

// For any sizes, the buckets cover the flat buffer and the slots without gap or
// overlap, from the back.
TEST(BucketsTest, TileTheFlatBuffer) {
  uint64_t state = 1;
  const auto draw = [&state](int64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(limit));
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> sizes(1 + draw(40));
    for (int64_t& size : sizes) size = draw(round % 2 == 0 ? 100 : 200000);
    const auto slots = slots_of(sizes);
    const int64_t flat_buffer_size = end_of(slots);
    const int64_t bucket_bytes = 1 + draw(1 << 20);
    const auto buckets =
        carve_buckets(slots, flat_buffer_size, 4, bucket_bytes);
    int64_t end = flat_buffer_size;
    int64_t last = static_cast<int64_t>(slots.size());
    for (size_t i = 0; i < buckets.size(); ++i) {
      const Bucket& bucket = buckets[i];
      EXPECT_EQ(bucket.offset + bucket.size, end);
      EXPECT_EQ(bucket.last_slot, last);
      EXPECT_LT(bucket.first_slot, bucket.last_slot);
      EXPECT_EQ(bucket.offset, slots[bucket.first_slot].offset);
      if (i + 2 < buckets.size()) {
        EXPECT_GE(bucket.size * 4, bucket_bytes / 4 * 4);
      }
      end = bucket.offset;
      last = bucket.first_slot;
    }
    EXPECT_EQ(end, 0);
    EXPECT_EQ(last, 0);
  }
}

TEST(BucketsTest, NoSizeIsRefused) {
  EXPECT_THROW(carve_buckets(slots_of({1}), 16, 4, 0), CheckFailure);
}

}  // namespace
}  // namespace headroom::data_parallel
