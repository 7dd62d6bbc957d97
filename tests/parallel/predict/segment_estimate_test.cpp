#include "parallel/predict/memory_model.h"

#include <gtest/gtest.h>

#include "tests/parallel/predict/small_layers.h"

namespace headroom::predict {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

MemoryRequest request_at(int64_t image_size) {
  MemoryRequest request;
  request.layers = small_layers();
  request.plan.micro_batch_size = 1;
  request.plan.batch_norm_group_size = 1;
  request.plan.stage_begins = {0};
  request.image_height = request.image_width = image_size;
  request.num_classes = 1;
  request.step = StepShape{1, image_size, image_size, {{0}}, 0};
  return request;
}

// All tensors of this small step are in segments of 2 MiB.
TEST(SegmentEstimate, SmallTensorsShareSmallSegments) {
  const MemoryRequest request = request_at(64);
  const SegmentEstimate estimate = estimate_segments(request, {});
  EXPECT_TRUE(estimate.fits);
  EXPECT_EQ(estimate.tensor_bytes, estimate_rank_memory(request, {}).total());
  EXPECT_EQ(estimate.segment_bytes, 2 * kMiB);
}

TEST(SegmentEstimate, SegmentsAreAtLeastTheirTensorsAndNotTwiceAsMuch) {
  const SegmentEstimate estimate = estimate_segments(request_at(2048), {});
  EXPECT_GT(estimate.tensor_bytes, 200 * kMiB);
  EXPECT_GE(estimate.segment_bytes, estimate.tensor_bytes);
  EXPECT_LT(estimate.segment_bytes, 2 * estimate.tensor_bytes);
}

TEST(SegmentEstimate, ALimitBelowTheTensorsDoesNotFit) {
  const MemoryRequest request = request_at(2048);
  const SegmentEstimate free = estimate_segments(request, {});
  EXPECT_TRUE(estimate_segments(request, {}, free.segment_bytes).fits);
  EXPECT_EQ(estimate_segments(request, {}, free.segment_bytes), free);
  EXPECT_FALSE(estimate_segments(request, {}, free.tensor_bytes / 2).fits);
}

TEST(SegmentEstimate, WithoutMomentsNothingIsAskedForThem) {
  MemoryRequest request = request_at(64);
  request.num_moments = 0;
  EXPECT_EQ(estimate_segments(request, {}).tensor_bytes,
            estimate_rank_memory(request, {}).total());
}

}  // namespace
}  // namespace headroom::predict
