// Tests ghost ranks on the tests' device: values, times, and a whole training
// step.
#include "tests/support/ghost_ranks/ghost_ranks.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "configs/cluster_catalogue.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"
#include "parallel/planner/plan_time.h"
#include "tests/support/ghost_ranks/stream_time.h"
#include "tests/support/rank_training.h"
#include "tests/support/test_device/launch_count.h"
#include "tests/support/test_device/test_device_api.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kElements = 1000;
constexpr double kBytes = kElements * sizeof(float);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Two cards of a machine whose link needs `seconds_of_sum` to sum kElements
// floats and has almost no latency.
GhostRanks::Options two_ranks(double seconds_of_sum) {
  GhostRanks::Options options;
  options.size = 2;
  options.machines.cards_each = 2;
  options.machines.inside = {kBytes / seconds_of_sum, 0};
  return options;
}

class Ghosts : public testing::Test {
 protected:
  c10::Stream stream() const {
    return c10::impl::VirtualGuardImpl(device.device().type())
        .getStream(device.device());
  }
  void synchronize() const { at::zeros({1}, device.options(at::kFloat)).cpu(); }
  at::Tensor ones() const {
    return at::full({kElements}, 1.0, device.options(at::kFloat));
  }

  const devices::ComputeDevice device = test_compute_device();
};

TEST_F(Ghosts, ASumOnTheDeviceKeepsItsValuesAndHoldsTheStreamNotTheHost) {
  GhostRanks ghosts(two_ranks(1), device);
  const auto world = ghosts.make_world();
  const at::Tensor tensor = ones();
  synchronize();
  const Clock::time_point begin = Clock::now();
  world->all_reduce(tensor);
  EXPECT_LT(seconds_since(begin), 1);
  EXPECT_EQ(tensor.sum().item<float>(), kElements);
  EXPECT_GE(seconds_since(begin), 1);
  const GhostRanks::Figures figures = ghosts.take();
  EXPECT_EQ(figures.sums, 1);
  EXPECT_NEAR(figures.held_seconds, 1, 1e-9);
  EXPECT_EQ(figures.host_waits, 0);
}

TEST_F(Ghosts, ASumOnTheHostIsThatOfEqualRanksAndTakesTheRingsTime) {
  GhostRanks ghosts(two_ranks(0.1), device);
  const auto world = ghosts.make_world();
  const at::Tensor tensor = at::full({kElements / 2}, 3.0, at::kDouble);
  const Clock::time_point begin = Clock::now();
  world->all_reduce(tensor);
  EXPECT_GE(seconds_since(begin), 0.1);
  EXPECT_EQ(tensor[0].item<double>(), 6.0);
  const at::Tensor largest = at::full({1}, 3, at::kLong);
  world->all_reduce(largest, collectives::ReduceOp::kMax);
  EXPECT_EQ(largest.item<int64_t>(), 3);
  EXPECT_EQ(ghosts.take().host_waits, 2);
}

TEST_F(Ghosts, APartHasAllRanksAndRefusesMessages) {
  GhostRanks ghosts(two_ranks(1e-3), device);
  const auto world = ghosts.make_world();
  const auto part = world->split(0, 0);
  EXPECT_EQ(part->size(), 2);
  EXPECT_EQ(part->rank(), 0);
  EXPECT_THROW(part->send_async(ones(), 1), Error);
}

TEST_F(Ghosts, AGatherAndAScatterMoveThisRanksPart) {
  GhostRanks ghosts(two_ranks(1e-3), device);
  const auto world = ghosts.make_world();
  const at::Tensor whole =
      at::zeros({2 * kElements}, device.options(at::kFloat));
  world->all_gather(whole, ones());
  EXPECT_EQ(whole.sum().item<float>(), kElements);
  const at::Tensor part = at::zeros({kElements}, device.options(at::kFloat));
  world->reduce_scatter(part, whole);
  EXPECT_EQ(part.sum().item<float>(), kElements);
}

// Time is hidden while the stream that waits still has other work.
TEST_F(Ghosts, OnlyTheTimeInWhichTheDeviceIsIdleIsExposed) {
  GhostRanks ghosts(two_ranks(0.2), device);
  const auto world = ghosts.make_world();
  ghosts.measure_exposed(true);
  const at::Tensor tensor = ones();
  world->all_reduce(tensor);
  synchronize();
  EXPECT_GE(ghosts.take().exposed_seconds, 0.19);

  const auto work =
      world->all_reduce_async(tensor, collectives::ReduceOp::kSum);
  hold_stream(stream(), 1, 1);
  work->wait();
  synchronize();
  EXPECT_LT(ghosts.take().exposed_seconds, 0.1);
}

TEST_F(Ghosts, TheCpuHasNone) {
  EXPECT_THROW(GhostRanks(two_ranks(1), devices::ComputeDevice()), Error);
}

TEST_F(Ghosts, ASumOfDoublesOnTheDeviceIsThatOfEqualRanks) {
  GhostRanks ghosts(two_ranks(1e-3), device);
  const auto world = ghosts.make_world();
  const at::Tensor tensor = at::full({3}, 2.0, device.options(at::kDouble));
  world->all_reduce(tensor);
  EXPECT_EQ(tensor.sum().item<double>(), 12);
}

struct Step {
  double loss = 0, sums = 0;
  int64_t launches = 0, reads = 0, host_waits = 0;
};

Step step_of(int ranks, const devices::ComputeDevice& device) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.synthetic_input = true;
  config.image_height = config.image_width = 64;
  config.global_batch_size = 2 * ranks;
  config.batch_norm_group_size = 2;
  config.layout = plan::parse_layout("data=" + std::to_string(ranks));
  config.activations = "keep";
  std::unique_ptr<GhostRanks> ghosts;
  std::unique_ptr<collectives::Communicator> world =
      collectives::make_device_host_communicator(
          collectives::make_single_communicator(), nullptr);
  if (ranks > 1) {
    GhostRanks::Options options;
    options.size = ranks;
    options.machines =
        planner::machines_of(configs::find_instance("p5.48xlarge"), ranks);
    ghosts = std::make_unique<GhostRanks>(options, device);
    world = ghosts->make_world();
  }
  RankTraining training(config, plan_of_synthetic_run(config), *world,
                        /*more_boxes_per_image=*/4, device);
  training.keep_batch();
  const step::StepResult first = training.step();
  take_launches();
  if (ghosts) ghosts->take();
  training.step();
  Step step{first.loss / static_cast<double>(config.global_batch_size)};
  for (const auto& [name, count] : take_launches()) {
    (name == "read" ? step.reads : step.launches) += count;
  }
  if (!ghosts) return step;
  const GhostRanks::Figures figures = ghosts->take();
  step.sums = static_cast<double>(figures.sums);
  step.host_waits = figures.host_waits;
  return step;
}

// Counts of matches and losses are those of equal ranks, so a step with ghosts
// has the same loss as a single rank. Its sums are the buckets of yolov5n, the
// statistics of batch norm and the reports. The device decides and commits, so
// the host waits once, as for a single rank, and for no peer. Beyond the
// launches of a single rank, the reports are sent, get the losses, and return
// with the outcome; and ghosts multiply two sums.
TEST_F(Ghosts, AStepOfManyRanksHasTheLossOfOneAndTheSumsOfItsBuckets) {
  const Step alone = step_of(1, device);
  for (const int ranks : {8, 64}) {
    const Step step = step_of(ranks, device);
    EXPECT_NEAR(step.loss, alone.loss, 1e-4 * alone.loss) << ranks;
    EXPECT_GE(step.sums, 4) << ranks;
    EXPECT_LE(step.sums, 7) << ranks;
    EXPECT_EQ(step.reads, alone.reads) << ranks;
    EXPECT_EQ(step.host_waits, 0) << ranks;
    EXPECT_LE(step.launches, alone.launches + 6) << ranks;
  }
}

}  // namespace
}  // namespace headroom
