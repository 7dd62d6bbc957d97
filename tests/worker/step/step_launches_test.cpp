// The number of kernels and copies that a training step launches, counted on
// the test device: each costs the host some microseconds, so that beyond a few
// hundred launches a step of a small batch waits for the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/collectives/backend.h"
#include "tests/support/rank_training.h"
#include "tests/support/test_device/launch_count.h"
#include "tests/support/test_device/test_device_api.h"

namespace headroom::step {
namespace {

using Launches = std::map<std::string, int64_t>;

// Trains yolov5s with one micro-batch of 16 images and the optimizer's step.
// The size of the images changes no count. Returns the launches of the last
// steps, captured or not.
std::vector<Launches> launches_of_steps(configs::Precision precision,
                                        bool cuda_graphs, int steps) {
  const devices::ComputeDevice device = test_compute_device();
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  configs::RunConfig config = small_synthetic_run();
  config.cfg = "yolov5s";
  config.global_batch_size = config.micro_batch_size = 16;
  config.precision = precision;
  config.cuda_graphs = cuda_graphs;
  const auto world = collectives::make_single_communicator();
  RankTraining training(config, plan_of_synthetic_run(config), *world,
                        /*more_boxes_per_image=*/7, device);
  training.step();  // allocates the buffers that later steps reuse
  for (int run = 1; cuda_graphs && run < CudaGraphRunner::kWarmUps; ++run) {
    training.step();
  }
  take_launches();
  std::vector<Launches> launches;
  for (int step = 0; step < steps; ++step) {
    training.step();
    launches.push_back(take_launches());
  }
  return launches;
}

// Prints the launches, the most frequent first, and returns their total.
int64_t total_of(const Launches& launches) {
  std::vector<std::pair<int64_t, std::string>> sorted;
  int64_t total = 0;
  for (const auto& [name, count] : launches) {
    sorted.emplace_back(count, name);
    total += count;
  }
  std::ranges::sort(sorted, std::greater());
  for (const auto& [count, name] : sorted) {
    std::printf("%6lld  %s\n", static_cast<long long>(count), name.c_str());
  }
  std::printf("%6lld  in all\n", static_cast<long long>(total));
  return total;
}

TEST(StepLaunches, AStepOfYolov5sTakesFew) {
  EXPECT_LE(total_of(launches_of_steps(configs::Precision::kBf16,
                                       /*cuda_graphs=*/false, 1)
                         .front()),
            750);
}

// The graph holds forward, loss, backward, decision and commit. Outside of it,
// the inputs are copied into the graph's buffers, and its accumulators are
// cleared.
TEST(StepLaunches, ACapturedStepIsOneGraph) {
  const std::vector<Launches> steps =
      launches_of_steps(configs::Precision::kBf16, /*cuda_graphs=*/true, 3);
  // Images are scaled in the capture, in its replay, and in the copy of the
  // next step's inputs, which is queued before the host waits for the end of
  // this step.
  EXPECT_EQ(steps[0].at("scale images"), 3);
  for (const Launches& launches : {steps[1], steps[2]}) {
    EXPECT_LE(total_of(launches), 20);
    EXPECT_EQ(launches.at("graph"), 1);
    EXPECT_EQ(launches.at("scale images"), 1);
    EXPECT_FALSE(launches.contains("commit"));
    EXPECT_FALSE(launches.contains("batch norm"));
  }
}

}  // namespace
}  // namespace headroom::step
