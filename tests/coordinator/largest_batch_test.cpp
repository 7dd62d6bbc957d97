#include "coordinator/largest_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "configs/model_table.h"
#include "coordinator/planner.h"
#include "parallel/base/check.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

RunConfig request(int64_t limit) {
  RunConfig config;
  config.cfg = "yolov5n";
  config.image_height = config.image_width = 320;
  config.memory_limit = limit;
  config.global_batch_size = -1;
  return config;
}

BatchChoice choose(const RunConfig& config, int world_size = 1) {
  return largest_batch(config, world_size,
                       row_costs(load_model_table(config.cfg)));
}

// What a batch needs in one piece.
int64_t bytes_of(RunConfig config, int64_t batch, int world_size = 1) {
  config.global_batch_size = batch;
  config.micro_batch_size = batch;
  config.memory_limit = 0;
  const Plan plan = plan_or_throw(config, world_size,
                                  row_costs(load_model_table(config.cfg)));
  return *std::ranges::max_element(plan.predicted_peak_bytes);
}

TEST(LargestBatch, TheNextGroupWouldNotFit) {
  const RunConfig config = request(2 * kGiB);
  const BatchChoice choice = choose(config);
  EXPECT_GE(choice.global_batch_size, 16);
  EXPECT_EQ(choice.global_batch_size % 16, 0);
  EXPECT_EQ(choice.bytes, bytes_of(config, choice.global_batch_size));
  EXPECT_LE(choice.bytes, 2 * kGiB);
  EXPECT_GT(bytes_of(config, choice.global_batch_size + 16), 2 * kGiB);
}

TEST(LargestBatch, GrowsWithMemoryAndProcesses) {
  const int64_t one = choose(request(2 * kGiB)).global_batch_size;
  EXPECT_GT(choose(request(4 * kGiB)).global_batch_size, one);
  EXPECT_EQ(choose(request(2 * kGiB), 2).global_batch_size, 2 * one);
  RunConfig split = request(2 * kGiB);
  split.layout = "spatial=2";  // each has half of every image
  EXPECT_GT(choose(split, 2).global_batch_size, one);
}

TEST(LargestBatch, RowsThatKeepLessLeaveRoomForMore) {
  RunConfig config = request(kGiB);
  const int64_t kept = choose(config).global_batch_size;
  config.activations = "recompute";
  EXPECT_GT(choose(config).global_batch_size, kept);
}

TEST(LargestBatch, LittleMemoryMeansFewImages) {
  RunConfig config = request(kGiB);
  config.image_height = config.image_width = 1280;
  const BatchChoice choice = choose(config);
  EXPECT_LT(choice.global_batch_size, 16);
  EXPECT_GE(choice.global_batch_size, 1);
  EXPECT_LE(choice.bytes, kGiB);
}

TEST(LargestBatch, NoMoreImagesThanTheDataSetHas) {
  RunConfig config = request(16 * kGiB);
  config.label_counts = "0x20 7x30";
  EXPECT_EQ(choose(config).global_batch_size, 48);
  EXPECT_EQ(choose(config).remark, "; the data set has no more than 50 images");
  EXPECT_EQ(choose(config, 4).global_batch_size, 32) << "8 of each rank's 12";
  config.label_counts = "0x3";
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
  RunConfig config = request(kGiB / 16 * 3);
  config.image_height = config.image_width = 1280;
  try {
    choose(config);
    FAIL() << "192 MiB hold an image of 1280 px";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kNoPlan);
    EXPECT_THAT(error.what(), HasSubstr("201326592 bytes"));
    EXPECT_THAT(error.what(), HasSubstr("use --activations recompute, or"));
  }
}

TEST(LargestBatch, OnlyWhatHelpsIsAdvised) {
  try {
    choose(request(kGiB / 64));  // less than the weights and their like
    FAIL() << "16 MiB do not hold the state";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("--activations")));
    EXPECT_THAT(error.what(), HasSubstr("use a smaller --img or model"));
  }
}

TEST(LargestBatch, TheEndOfTheSearchIsSaid) {
  RunConfig config = request(kGiB << 20);
  config.image_height = config.image_width = 64;
  const BatchChoice choice = choose(config);
  EXPECT_EQ(choice.global_batch_size, 65536);
  EXPECT_EQ(choice.remark, "; larger ones are not tried");
}

}  // namespace
}  // namespace headroom
