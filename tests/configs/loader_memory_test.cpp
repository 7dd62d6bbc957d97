#include "configs/loader_memory.h"

#include <gtest/gtest.h>

#include "configs/run_config.h"

namespace headroom::configs {
namespace {

LoaderShape small_shape() {
  LoaderShape shape;
  shape.image_height = shape.image_width = shape.own_rows = 100;
  shape.largest_pixels = shape.source_pixels = 100 * 100;
  shape.images_of_a_batch = 4;
  shape.most_threads = 2;
  return shape;
}
constexpr int64_t kPicture = 100 * 100 * 3;

// A thread holds a source picture, a canvas of twice the sides, and the sample.
TEST(LoaderMemory, ItemsOfAMosaic) {
  const LoaderBudget budget = loader_budget(small_shape(), {}, 0);
  EXPECT_EQ(budget.thread_bytes, (1 + 4 + 1) * kPicture);
  EXPECT_EQ(budget.batch_bytes, 4 * kPicture);
  EXPECT_EQ(budget.num_threads, 2);
  EXPECT_EQ(budget.queue_depth, 8);
  EXPECT_EQ(budget.total_bytes(), kDefaultHostMemory);
}

TEST(LoaderMemory, BandsAreCounted) {
  LoaderShape shape = small_shape();
  shape.bands = 5;
  const LoaderBudget budget = loader_budget(shape, {}, 0);
  EXPECT_EQ(budget.thread_bytes, (1 + 4 + 1) * kPicture / 3 * 5);
  EXPECT_EQ(budget.batch_bytes, 4 * kPicture / 3 * 5);
}

TEST(LoaderMemory, SixteenBitsAreTwiceTheBytes) {
  LoaderShape shape = small_shape();
  shape.sample_bytes = 2;
  const LoaderBudget budget = loader_budget(shape, {}, 0);
  EXPECT_EQ(budget.thread_bytes, 2 * (1 + 4 + 1) * kPicture);
  EXPECT_EQ(budget.batch_bytes, 2 * 4 * kPicture);
  shape.packs = true;
  EXPECT_GT(loader_budget(shape, {}, 0).batch_bytes, 4 * 2 * 2 * kPicture);
}

// Copy-paste needs one more picture, which contains all tiles.
TEST(LoaderMemory, CopyPasteTakesACanvas) {
  Hyperparameters hyp;
  hyp.copy_paste = 0.1;
  EXPECT_EQ(loader_budget(small_shape(), hyp, 0).thread_bytes,
            (1 + 4 + 4 + 1) * kPicture);
  hyp.mosaic9 = 1;
  EXPECT_EQ(loader_budget(small_shape(), hyp, 0).thread_bytes,
            (1 + 9 + 4 + 1) * kPicture);
  LoaderShape rect = small_shape();
  rect.mosaic = false;
  EXPECT_EQ(loader_budget(rect, hyp, 0).thread_bytes, 2 * kPicture);
}

// Both mosaics are held in memory until they are mixed.
TEST(LoaderMemory, MixupTakesTheTilesOfBoth) {
  Hyperparameters hyp;
  hyp.mixup = 0.1;
  EXPECT_EQ(loader_budget(small_shape(), hyp, 0).thread_bytes,
            (1 + 2 * 4 + 2) * kPicture);
  hyp.copy_paste = 0.1;
  EXPECT_EQ(loader_budget(small_shape(), hyp, 0).thread_bytes,
            (1 + 2 * 4 + 4 + 2) * kPicture);
}

// A packed sample takes twice its pixels, and the list of changes to apply.
TEST(LoaderMemory, PackedSamplesTakeTheirRoom) {
  LoaderShape shape = small_shape();
  shape.packs = true;
  const int64_t bytes = loader_budget(shape, {}, 0).batch_bytes;
  EXPECT_GT(bytes, 4 * 2 * kPicture);
  EXPECT_LT(bytes, 4 * (2 * kPicture + 1100));
}

// The program's answer is a second sample, and both have all rows.
TEST(LoaderMemory, AProgramReturnsASecondSample) {
  LoaderShape shape = small_shape();
  shape.has_program = true;
  EXPECT_EQ(loader_budget(shape, {}, 0).thread_bytes, (1 + 4 + 2) * kPicture);
  shape.own_rows /= 2;
  EXPECT_EQ(loader_budget(shape, {}, 0).thread_bytes, (1 + 4 + 2) * kPicture);
}

TEST(AugmentPlace, IsTheCardUnlessAskedForOrNothingIsRenderedThere) {
  RunConfig config;
  EXPECT_FALSE(augment_place(config).on_device);
  config.device = "0";
  EXPECT_TRUE(augment_place(config).on_device);
  config.synthetic_input = true;
  EXPECT_FALSE(augment_place(config).on_device);
  config.synthetic_input = false;
  config.augment_program = "python3 a.py";
  EXPECT_FALSE(augment_place(config).on_device);
  EXPECT_EQ(augment_place(config).reason,
            "--augment-program gets its samples on the host");
  config.augment_program = "";
  config.augment_on = "cpu";
  EXPECT_FALSE(augment_place(config).on_device);
  config.augment_on = "device";
  EXPECT_TRUE(augment_place(config).on_device);
}

TEST(LoaderMemory, ValidationRemembersNoImages) {
  LoaderShape shape = small_shape();
  shape.validation = true;
  const LoaderBudget budget = loader_budget(shape, {}, 0);
  EXPECT_EQ(budget.cache_bytes, 0);
  EXPECT_EQ(budget.thread_bytes, 2 * kPicture);
  EXPECT_EQ(budget.total_bytes(), 2 * 2 * kPicture + 8 * 4 * kPicture);
}

TEST(LoaderMemory, ABatchMayBeOfLargerImagesThanAreMade) {
  LoaderShape shape = small_shape();
  shape.input_pixels = 150 * 150;
  const LoaderBudget budget = loader_budget(shape, {}, 0);
  EXPECT_EQ(budget.thread_bytes, (1 + 4 + 1) * kPicture);
  EXPECT_EQ(budget.batch_bytes, 4 * 150 * 150 * 3);
}

TEST(LoaderMemory, OneBatchAndOneThreadAreAlwaysThere) {
  const LoaderBudget budget = loader_budget(small_shape(), {}, 1);
  EXPECT_EQ(budget.total_bytes(), budget.least_bytes());
  EXPECT_EQ(budget.least_bytes(), (6 + 4) * kPicture);
}

TEST(LoaderMemory, ALimitIsKept) {
  for (const int64_t pictures : {20, 33, 64, 200}) {
    const LoaderBudget budget =
        loader_budget(small_shape(), {}, pictures * kPicture);
    EXPECT_LE(budget.total_bytes(), pictures * kPicture) << pictures;
  }
}

TEST(SharedCache, IsTheSumOfTheRanksShares) {
  EXPECT_EQ(shared_cache_bytes(100, 8, 0), 800);
  EXPECT_EQ(shared_cache_bytes(100, 8, 10'000), 800);
}

TEST(SharedCache, LeavesAQuarterOfTheFreeMemory) {
  EXPECT_EQ(shared_cache_bytes(100, 8, 400), 300);
}

}  // namespace
}  // namespace headroom::configs
