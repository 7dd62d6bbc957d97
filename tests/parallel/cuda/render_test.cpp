// The rendering kernel gives the same bytes as the CPU's own loops.
#include <opencv2/core.hpp>

#include "parallel/base/check.h"
#include "parallel/cuda/kernel_arguments.h"
#include "tests/parallel/cuda/kernels_under_test.h"
#include "tests/parallel/cuda/packed_samples.h"
#include "tests/worker/data/colours.h"

namespace headroom::cuda {
namespace {

constexpr codecs::PixelRows kWhole{0, ShapedImages::kHeight};

void expect_same(const PackedBatch& batch) {
  const KernelsUnderTest& device = under_test();
  const at::Tensor images = device.there(batch.images());
  device.kernels->render_samples(device.there(batch.region()), batch.starts,
                                 images);
  EXPECT_EQ(batch.different(images.cpu()), std::vector<size_t>());
}

class DeviceRender : public ::testing::TestWithParam<int> {};

TEST_P(DeviceRender, MosaicsMixupWarpsColoursAndFlips) {
  HEADROOM_NEEDS_KERNELS();
  const int type = GetParam();
  expect_same(packed_batch(all_of_augmentation(), type, kWhole, 40));
  expect_same(packed_batch(all_of_augmentation(), type, {32, 64}, 10));
  expect_same(packed_batch(all_of_augmentation(), type, {5, 6}, 10));
}

TEST_P(DeviceRender, Perspective) {
  HEADROOM_NEEDS_KERNELS();
  configs::Hyperparameters hyp = all_of_augmentation();
  for (const double perspective : {0.0005, 0.001, 0.02}) {
    hyp.perspective = perspective;
    expect_same(packed_batch(hyp, GetParam(), kWhole, 15));
    expect_same(packed_batch(hyp, GetParam(), {32, 64}, 5));
  }
}

TEST_P(DeviceRender, DefaultHyperparameters) {
  HEADROOM_NEEDS_KERNELS();
  expect_same(packed_batch({}, GetParam(), kWhole, 20));
}

TEST_P(DeviceRender, Letterboxes) {
  HEADROOM_NEEDS_KERNELS();
  configs::Hyperparameters hyp;
  hyp.mosaic = hyp.scale = hyp.translate = 0;
  expect_same(packed_batch(hyp, GetParam(), kWhole, 4));
  expect_same(packed_batch(hyp, GetParam(), {64, 96}, 4));
}

std::string name_of_type(const ::testing::TestParamInfo<int>& type) {
  return (CV_MAT_DEPTH(type.param) == CV_8U ? "Bytes" : "Deep") +
         std::to_string(CV_MAT_CN(type.param));
}

INSTANTIATE_TEST_SUITE_P(Types, DeviceRender,
                         ::testing::Values(CV_8UC3, CV_8UC1, CV_8UC(5),
                                           CV_16UC3, CV_16UC1, CV_16UC(5)),
                         name_of_type);

// Extreme warps: nothing of the picture is visible, a single point of it fills
// the image, or positions exceed the range of int.
TEST(DeviceRenders, WarpsThatShowNothing) {
  HEADROOM_NEEDS_KERNELS();
  PackedBatch batch;
  augment::Warp away, flat, beyond, small, edge;
  away.matrix(1, 2) = 1e7;
  flat.matrix(0, 0) = flat.matrix(1, 1) = 0;
  beyond.matrix(0, 2) = -1e300;
  small.matrix(0, 0) = small.matrix(1, 1) = 1e-9;
  edge.matrix(2, 0) = 1. / 16;  // one column is at infinity
  edge.matrix(2, 2) = -1;
  for (const augment::Warp& warp : {away, flat, beyond, small, edge}) {
    augment::SampleRecipe recipe = augment::recipe_of(test_picture(40, 50, 1));
    recipe.picture.warp = warp;
    batch.add(recipe);
  }
  expect_same(batch);
}

TEST(DeviceRenders, FinishedPixels) {
  HEADROOM_NEEDS_KERNELS();
  PackedBatch batch;
  batch.add(augment::recipe_of(test_picture(40, 50, 1)));
  expect_same(batch);
}

// Renders every colour, with factors that wrap hues and saturate.
TEST(DeviceRenders, AllColours) {
  HEADROOM_NEEDS_KERNELS();
  for (const augment::HsvGains& gains :
       {augment::HsvGains{1.01, 0.6, 1.3}, augment::HsvGains{1.9, 1.7, 0.4}}) {
    PackedBatch batch;
    for (int red = 0; red < 256; red += 5) {
      augment::SampleRecipe recipe = augment::recipe_of(all_colours_with(red));
      recipe.gains = gains;
      batch.add(recipe);
    }
    expect_same(batch);
  }
}

// Only those rows are packed that the warp reads: at a scale of two, this is a
// quarter of the bytes.
TEST(SamplePacking, PacksOnlyTheRowsThatTheWarpReaches) {
  augment::SampleRecipe recipe = augment::recipe_of(test_picture(200, 200, 1));
  const int64_t whole = augment::SamplePacking(recipe).bytes();
  EXPECT_LT(whole, 200 * 200 * 3 + 400);
  recipe.picture.warp.matrix(0, 0) = recipe.picture.warp.matrix(1, 1) = 2;
  EXPECT_LT(augment::SamplePacking(recipe).bytes(), whole * 27 / 100);
  recipe.picture.warp.matrix(0, 2) = 1e6;
  EXPECT_LT(augment::SamplePacking(recipe).bytes(), 400);
}

TEST(SamplePacking, LeavesUnsupportedAugmentationsToTheCpu) {
  augment::SampleRecipe recipe = augment::recipe_of(test_picture(20, 20, 1));
  EXPECT_TRUE(augment::can_be_packed(recipe));
  recipe.changes.gray = true;
  EXPECT_FALSE(augment::can_be_packed(recipe));
  EXPECT_THROW(augment::SamplePacking{recipe}, CheckFailure);
  recipe.has_colours = false;  // bands of other kinds stay unchanged
  EXPECT_TRUE(augment::can_be_packed(recipe));
  for (const augment::PixelChanges& changes :
       {augment::PixelChanges{3, 0, false, 0},
        augment::PixelChanges{0, 3, false, 0},
        augment::PixelChanges{0, 0, false, 2}}) {
    recipe.changes = changes;
    EXPECT_FALSE(augment::can_be_packed(recipe));
  }
}

TEST(RenderArguments, AreChecked) {
  PackedBatch batch;
  batch.add(augment::recipe_of(test_picture(4, 5, 1)));
  const at::Tensor region = batch.region(), images = batch.images();
  const auto refused = [&](const at::Tensor& bytes,
                           const std::vector<int64_t>& starts,
                           const at::Tensor& to) {
    EXPECT_THROW(render_arguments(bytes, starts, to, 0), CheckFailure);
  };
  EXPECT_EQ(render_arguments(region, batch.starts, images, 0).count, 1);
  refused(region.to(at::kInt), {0}, images);
  refused(region, {0}, images.to(at::kFloat));
  refused(region, {0, 0}, images);
  refused(region, {8}, images);
  refused(region, {region.numel() / 16 * 16}, images);
  refused(region, {-16}, images);
}

}  // namespace
}  // namespace headroom::cuda
