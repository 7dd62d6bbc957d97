#include "worker/data/loader/loader_plan.h"

#include <gtest/gtest.h>

namespace headroom::loader {
namespace {

TEST(RectBatches, AreSortedByAspectAndAsLargeAsNeeded) {
  const std::vector<codecs::ImageSize> sizes{
      {100, 100}, {400, 100}, {100, 400}, {200, 400}, {400, 200}};
  RectOptions options;
  options.batch_size = 2;
  options.height = 320;
  options.width = 320;
  const RectBatches batches = make_rect_batches(sizes, options);
  EXPECT_EQ(batches.order, (std::vector<int64_t>{2, 3, 0, 4, 1}));
  ASSERT_EQ(batches.shapes.size(), 3u);
  EXPECT_EQ(batches.shapes[0].height, 160);
  EXPECT_EQ(batches.shapes[0].width, 320);
  EXPECT_EQ(batches.shapes[1].height, 320);
  EXPECT_EQ(batches.shapes[1].width, 320);
  EXPECT_EQ(batches.shapes[2].height, 320);
  EXPECT_EQ(batches.shapes[2].width, 96);  // 80 rounded up
}

TEST(RectBatches, HalfAStrideIsAddedInValidation) {
  RectOptions options;
  options.pad = 0.5;
  const std::vector<codecs::ImageSize> sizes = {{480, 640}};
  const RectBatches batches = make_rect_batches(sizes, options);
  EXPECT_EQ(batches.shapes[0].height, 512);
  EXPECT_EQ(batches.shapes[0].width, 672);
}

// The network has 320 x 640 pixels. An image of the network's shape fills it; a
// flatter image needs fewer rows, and a taller image fewer columns.
TEST(RectBatches, WorkForANetworkThatIsNotSquare) {
  RectOptions options;
  options.batch_size = 1;
  options.height = 320;
  options.width = 640;
  const std::vector<codecs::ImageSize> sizes = {
      {100, 200}, {100, 400}, {100, 100}};
  const RectBatches batches = make_rect_batches(sizes, options);
  EXPECT_EQ(batches.order, (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(batches.shapes[0].height, 160);
  EXPECT_EQ(batches.shapes[0].width, 640);
  EXPECT_EQ(batches.shapes[1].height, 320);
  EXPECT_EQ(batches.shapes[1].width, 640);
  EXPECT_EQ(batches.shapes[2].height, 320);
  EXPECT_EQ(batches.shapes[2].width, 320);
}

}  // namespace
}  // namespace headroom::loader
