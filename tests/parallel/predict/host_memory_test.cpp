#include "parallel/predict/host_memory.h"

#include <gtest/gtest.h>

#include "configs/layers/model_table.h"

namespace headroom::predict {
namespace {

HostMemory memory_of(const configs::RunConfig& config, int rank = 0,
                     int ranks = 1) {
  plan::Plan plan;
  plan.layout.data_parallel_size = ranks;
  plan::MeshCoordinates at;
  at.data_parallel_rank = rank;
  return host_memory(config, plan,
                     layers::layer_costs(layers::load_model_table("yolov5n")),
                     at);
}

TEST(HostMemory, AllLoadersTogetherKeepTheLimit) {
  configs::RunConfig config;
  const int64_t least = memory_of(config).least_bytes();
  for (const int64_t limit : {least, least * 3 / 2, 4 * least, 40 * least}) {
    config.host_memory_limit = limit;
    EXPECT_LE(memory_of(config).total_bytes(), limit);
  }
}

TEST(HostMemory, ABatchOfEachLoaderIsTheLeast) {
  configs::RunConfig config;
  const HostMemory memory = memory_of(config);
  constexpr int64_t kSample = 640 * 640 * 3;
  constexpr int64_t kPadded = 672 * 672 * 3;
  EXPECT_EQ(memory.training.batch_bytes, 16 * kSample);
  EXPECT_EQ(memory.validation.batch_bytes, 16 * kPadded);
  EXPECT_EQ(memory.training.thread_bytes, (1 + 4 + 1) * kSample);
  EXPECT_GE(memory.least_bytes(), 16 * (kSample + kPadded));
}

TEST(HostMemory, OnlyTheRankThatWritesHoldsLayersForFiles) {
  EXPECT_GT(memory_of({}, 0, 2).files, 0);
  EXPECT_EQ(memory_of({}, 1, 2).files, 0);
}

// yolov5n has 1.87 million parameters. The weights, the momentum, the
// accumulated gradients and the averaged weights are copied.
TEST(HostMemory, TheRankThatWritesHoldsACopyOfTheState) {
  EXPECT_GT(memory_of({}, 0, 2).state_copy, 4 * 4 * 1'860'000);
  EXPECT_LT(memory_of({}, 0, 2).state_copy, 4 * 4 * 1'900'000);
  EXPECT_EQ(memory_of({}, 1, 2).state_copy, 0);
  configs::RunConfig config;
  config.optimizer = configs::OptimizerKind::kAdamW;
  EXPECT_GT(memory_of(config).state_copy, 5 * 4 * 1'860'000);
  config.epochs = 1;  // the only checkpoint is written at the end
  EXPECT_EQ(memory_of(config).state_copy, 0);
  config.checkpoint_every_steps = 10;
  EXPECT_GT(memory_of(config).state_copy, 0);
}

TEST(HostMemory, WithoutRoomForItThereIsNoCopy) {
  configs::RunConfig config;
  const HostMemory all = memory_of(config);
  const int64_t least = all.least_bytes();
  EXPECT_FALSE(host_shares(least, all).copies_state);
  EXPECT_TRUE(host_shares(least + all.state_copy, all).copies_state);
  config.host_memory_limit = least + all.state_copy - 1;
  EXPECT_EQ(memory_of(config).state_copy, 0);
  EXPECT_LE(memory_of(config).total_bytes(), config.host_memory_limit);
  config.host_memory_limit = least + all.state_copy;
  EXPECT_EQ(memory_of(config).state_copy, all.state_copy);
  EXPECT_LE(memory_of(config).total_bytes(), config.host_memory_limit);
}

TEST(HostMemory, WithoutRoomForThemNoPicturesAreDrawn) {
  configs::RunConfig config;
  const HostMemory all = memory_of(config);
  EXPECT_GT(all.pictures, 1920 * 1920 * 3);
  EXPECT_EQ(memory_of({}, 1, 2).pictures, 0);
  const int64_t needed = all.least_bytes() + all.state_copy + all.pictures;
  EXPECT_TRUE(host_shares(needed, all).draws_pictures);
  EXPECT_FALSE(host_shares(needed - 1, all).draws_pictures);
  EXPECT_TRUE(host_shares(needed - 1, all).copies_state);
  config.host_memory_limit = needed - 1;
  EXPECT_EQ(memory_of(config).pictures, 0);
  config.host_memory_limit = 0;
  config.noplots = true;
  EXPECT_EQ(memory_of(config).pictures, 0);
}

TEST(HostMemory, SyntheticInputHasNoLoaders) {
  configs::RunConfig config;
  config.synthetic_input = true;
  const HostMemory memory = memory_of(config);
  EXPECT_EQ(memory.total_bytes(), memory.training.total_bytes() + memory.files +
                                      memory.state_copy + memory.pictures);
  EXPECT_EQ(memory.training.total_bytes(), 0);
}

// A hundred thousand images of 300 detections over 8 ranks.
TEST(HostMemory, ARankHoldsItsOwnDetectionsAndTheFirstAPartOfTheOthers) {
  configs::RunConfig config;
  constexpr int64_t kOwn = 12'500 * int64_t{300} * 24;
  EXPECT_EQ(record_bytes(config, 100'000, 8, false), kOwn);
  EXPECT_EQ(record_bytes(config, 100'000, 8, true), kOwn + (64 << 20));
  EXPECT_EQ(record_bytes(config, 100'000, 1, true), 8 * kOwn);
  EXPECT_EQ(record_bytes(config, 16, 2, true), 16 * 300 * 24);
}

TEST(HostShares, DetectionsMakeTheLoadersSmallerButRefuseNoLimit) {
  HostMemory memory = memory_of({});
  const int64_t least = memory.least_bytes();
  const int64_t limit = least + memory.state_copy + memory.pictures + 1000;
  const HostShares without = host_shares(limit, memory);
  memory.records = 400;
  const HostShares with = host_shares(limit, memory);
  EXPECT_EQ(with.training + with.validation,
            without.training + without.validation - 400);
  EXPECT_EQ(memory.total_bytes(), memory_of({}).total_bytes() + 400);
  memory.records = 1 << 30;
  EXPECT_EQ(memory.least_bytes(), least);
  EXPECT_GE(host_shares(least, memory).training, memory.training.least_bytes());
}

TEST(HostShares, WithoutALimitNothingIsBounded) {
  EXPECT_EQ(host_shares(0, {}).training, 0);
  EXPECT_EQ(host_shares(0, {}).validation, 0);
}

}  // namespace
}  // namespace headroom::predict
