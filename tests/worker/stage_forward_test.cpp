#include "worker/stage_forward.h"

#include <ATen/ops/allclose.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "parallel/activations/counting_allocator.h"
#include "worker/data/synthetic.h"
#include "worker/run_inputs.h"

namespace headroom {
namespace {

struct Network {
  Network()
      : model(load_model_table("yolov5n"), /*num_classes=*/1, at::kFloat, 0) {
    RunConfig config;
    config.image_height = config.image_width = 64;
    LoaderOptions options = loader_options(config, model);
    options.global_batch_size = 7;
    options.micro_batch_size = 7;
    batch = SyntheticInput(options).next();
  }
  LayerGraph model;
  Batch batch;
  std::unique_ptr<Communicator> alone = make_single_communicator();
  ReplicaForward replica{model, *alone, at::kFloat};
};

TEST(StageForward, GoesThroughInHalvesWhereMemoryDoesNotSuffice) {
  CountingAllocator::install();
  Network network;
  CountingAllocator& allocator = CountingAllocator::instance();
  allocator.reset_peak();
  const int64_t before = allocator.live_bytes();
  const auto whole = network.replica.network.run(network.batch);
  EXPECT_EQ(network.replica.network.num_halvings(), 0);
  const int64_t needed = allocator.peak_bytes() - before;

  allocator.set_limit(allocator.live_bytes() + needed * 2 / 3);
  const auto halves = network.replica.network.run(network.batch);
  allocator.set_limit(CountingAllocator::kNoLimit);
  EXPECT_GT(network.replica.network.num_halvings(), 0);
  ASSERT_EQ(halves.size(), whole.size());
  for (size_t level = 0; level < whole.size(); ++level) {
    EXPECT_TRUE(at::allclose(halves[level], whole[level], 1e-5, 1e-5));
  }
}

TEST(StageForward, OneImageThatDoesNotFitIsAnError) {
  CountingAllocator::install();
  Network network;
  CountingAllocator& allocator = CountingAllocator::instance();
  allocator.set_limit(allocator.live_bytes() + 1000);
  EXPECT_THROW(network.replica.network.run(network.batch),
               c10::OutOfMemoryError);
  allocator.set_limit(CountingAllocator::kNoLimit);
}

}  // namespace
}  // namespace headroom
