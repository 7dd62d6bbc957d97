#include "parallel/planner/largest_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

configs::RunConfig request(int64_t limit) {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.image_height = config.image_width = 320;
  config.memory_limit = limit;
  config.global_batch_size = -1;
  return config;
}

BatchChoice choose(const configs::RunConfig& config, int world_size = 1) {
  return largest_batch(
      config, world_size,
      layers::layer_costs(layers::load_model_table(config.cfg)));
}

// The bytes of a batch that is one micro-batch.
int64_t bytes_of(configs::RunConfig config, int64_t batch, int world_size = 1) {
  config.global_batch_size = batch;
  config.micro_batch_size = batch;
  config.memory_limit = 0;
  const plan::Plan plan =
      plan_or_throw(config, world_size,
                    layers::layer_costs(layers::load_model_table(config.cfg)));
  return *std::ranges::max_element(plan.predicted_peak_bytes);
}

TEST(LargestBatch, TheNextWouldNotFit) {
  const configs::RunConfig config = request(2 * kGiB);
  const BatchChoice choice = choose(config);
  EXPECT_GT(choice.global_batch_size, 32);
  EXPECT_EQ(choice.bytes, bytes_of(config, choice.global_batch_size));
  EXPECT_LE(choice.bytes, 2 * kGiB);
  // The next batch whose groups have at least 8 images is larger by at most 8.
  EXPECT_GT(bytes_of(config, choice.global_batch_size + 8), 2 * kGiB);
}

TEST(LargestBatch, TheLoadersMemoryAlsoBoundsIt) {
  configs::RunConfig config = request(2 * kGiB);
  const int64_t without = choose(config).global_batch_size;
  config.host_memory_limit = int64_t{16} << 20;
  const int64_t within = choose(config).global_batch_size;
  EXPECT_GT(within, 1);
  EXPECT_LT(within, without);
}

TEST(LargestBatch, UpToSixteenItIsAnyNumber) {
  for (const int64_t wanted : {1, 3, 7, 11, 13, 16}) {
    configs::RunConfig config = request(1);
    config.memory_limit = bytes_of(config, wanted);
    EXPECT_EQ(choose(config).global_batch_size, wanted);
    EXPECT_EQ(choose(config).remark, "");
  }
}

TEST(LargestBatch, AnyNumberOfImagesIsOne) {
  configs::RunConfig config = request(1);
  for (const int64_t wanted : {17, 19, 37}) {
    config.memory_limit = bytes_of(config, wanted);
    EXPECT_EQ(choose(config).global_batch_size, wanted);
    EXPECT_EQ(choose(config).remark, "");
  }
}

TEST(LargestBatch, ARequestedGroupIsTheMinimum) {
  configs::RunConfig config = request(1);
  config.batch_norm_group_size = 8;
  config.memory_limit = bytes_of(config, 9);
  EXPECT_EQ(choose(config).global_batch_size, 9);
  config.memory_limit = bytes_of(config, 8) - 1;
  try {
    choose(config);
    FAIL() << "a group of 8 does not fit";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kNoPlan);
    EXPECT_THAT(error.what(),
                HasSubstr("8 images a process, for --bn-group 8, need"));
    EXPECT_THAT(error.what(), HasSubstr("or --bn-group 7, or"));
  }
}

TEST(LargestBatch, GrowsWithMemoryAndProcesses) {
  const int64_t one = choose(request(2 * kGiB)).global_batch_size;
  EXPECT_GT(choose(request(4 * kGiB)).global_batch_size, one);
  EXPECT_EQ(choose(request(2 * kGiB), 2).global_batch_size, 2 * one);
  configs::RunConfig split = request(2 * kGiB);
  split.layout =
      plan::parse_layout("spatial=2");  // each rank has half of every image
  EXPECT_GT(choose(split, 2).global_batch_size, one);
}

TEST(LargestBatch, LayersThatKeepLessLeaveRoomForMore) {
  configs::RunConfig config = request(kGiB);
  const int64_t kept = choose(config).global_batch_size;
  config.activations = "recompute";
  EXPECT_GT(choose(config).global_batch_size, kept);
}

TEST(LargestBatch, LittleMemoryMeansFewImages) {
  configs::RunConfig config = request(kGiB);
  config.image_height = config.image_width = 1280;
  const BatchChoice choice = choose(config);
  EXPECT_LT(choice.global_batch_size, 8);
  EXPECT_GE(choice.global_batch_size, 2);
  EXPECT_LE(choice.bytes, kGiB);
}

TEST(LargestBatch, NoMoreImagesThanTheDataSetHas) {
  configs::RunConfig config = request(16 * kGiB);
  config.label_counts = "0x20 7x30";
  EXPECT_EQ(choose(config).global_batch_size, 50);
  EXPECT_EQ(choose(config).remark, "; the data set has no more than 50 images");
  EXPECT_EQ(choose(config, 4).global_batch_size, 48) << "12 of each rank";
  EXPECT_EQ(choose(config, 4).remark,
            "; the data set has no more than 50 images for 4 processes to "
            "share equally");
  config.label_counts = "0x37";
  EXPECT_EQ(choose(config).global_batch_size, 37);
  EXPECT_EQ(choose(config).remark, "; the data set has no more than 37 images");
  config.label_counts = "0x3";
  EXPECT_EQ(choose(config).global_batch_size, 3);
  EXPECT_EQ(choose(config, 3).global_batch_size, 3);
  config.memory_limit = kGiB / 2;
  config.label_counts = "0x20000 7x30";
  EXPECT_EQ(choose(config).remark, "") << "memory bounds it";
  config.label_counts = "0x3";
  try {
    choose(config, 4);
    FAIL() << "four processes share three images";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    EXPECT_THAT(error.what(), HasSubstr("use --processes 3 or less"));
  }
}

TEST(LargestBatch, OneImageTooManyIsRefusedWithBothNumbers) {
  configs::RunConfig config = request(kGiB / 16 * 3);
  config.image_height = config.image_width = 1280;
  try {
    choose(config);
    FAIL() << "192 MiB hold an image of 1280 px";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kNoPlan);
    EXPECT_THAT(error.what(), HasSubstr("201326592 bytes"));
    EXPECT_THAT(error.what(), HasSubstr("use --activations recompute, or"));
    const std::string flag = ", or --memory-limit ";
    const std::string what = error.what();
    ASSERT_THAT(what, HasSubstr(flag));
    config.memory_limit = std::stoll(what.substr(what.find(flag) + flag.size()))
                          << 20;
    EXPECT_EQ(choose(config).global_batch_size, 1);
    config.memory_limit -= 1 << 20;
    EXPECT_THROW(choose(config), Error) << "a MiB less";
  }
}

TEST(LargestBatch, OnlyUsefulRemediesAreAdvised) {
  try {
    choose(request(kGiB / 64));  // less than the state of the model
    FAIL() << "16 MiB do not hold the state";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("--activations")));
    EXPECT_THAT(error.what(), HasSubstr("use --memory-limit "));
  }
}

TEST(LargestBatch, TheEndOfTheSearchIsReported) {
  configs::RunConfig config = request(kGiB << 20);
  config.image_height = config.image_width = 64;
  const BatchChoice choice = choose(config);
  EXPECT_EQ(choice.global_batch_size, 65536);
  EXPECT_EQ(choice.remark, "; larger ones are not tried");
}

}  // namespace
}  // namespace headroom::planner
