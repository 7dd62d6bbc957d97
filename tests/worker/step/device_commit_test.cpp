// A device decides at the end of a step whether the step is finite. Non-finite
// values do not change the state, both with single kernels and inside a
// captured graph, and the next step trains as if the failed one had not been
// tried.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/collectives/backend.h"
#include "tests/support/rank_training.h"
#include "tests/support/state_bytes.h"
#include "tests/support/test_device/test_device_api.h"
#include "tests/support/test_device/test_graph.h"

namespace headroom::step {
namespace {

using data_parallel::Outcome;

struct Setting {
  bool cuda_graphs = false;
  int64_t micro_batch = 0;
  configs::OptimizerKind optimizer = configs::OptimizerKind::kSgd;
  configs::Precision precision = configs::Precision::kFp64;
};

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << (setting.cuda_graphs ? "graphs " : "eager ")
       << to_string(setting.optimizer) << ", micro-batch "
       << setting.micro_batch << ", precision "
       << static_cast<int>(setting.precision);
}

configs::RunConfig config_of(const Setting& setting) {
  configs::RunConfig config = small_synthetic_run();
  config.precision = setting.precision;
  config.optimizer = setting.optimizer;
  config.cuda_graphs = setting.cuda_graphs;
  config.micro_batch_size = setting.micro_batch;
  config.batch_norm_group_size = setting.micro_batch;
  config.epochs = 3;
  config.hyp.warmup_epochs = 0.1;  // gradients are accumulated from step 4 on
  return config;
}

struct Trained {
  std::vector<double> losses;
  std::vector<bool> optimizer_stepped;
  std::vector<at::Tensor> state;
  int64_t replays = 0;
};

// Runs `steps` steps. In step number `poisoned`, a weight is infinite; it is
// reset after the step. -1 means that no step has an infinite weight.
Trained train(const Setting& setting, int64_t steps, int64_t poisoned) {
  const devices::ComputeDevice device = test_compute_device();
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  const configs::RunConfig config = config_of(setting);
  const auto world = collectives::make_single_communicator();
  RankTraining training(config, plan_of_synthetic_run(config), *world,
                        /*more_boxes_per_image=*/7, device);
  Trained trained;
  const int64_t replays = TestGraph::replays();
  TrainingState& state = training.state();
  for (int64_t step = 0; step < steps; ++step) {
    if (step != poisoned) {
      const StepResult result = training.step();
      trained.losses.push_back(result.loss);
      trained.optimizer_stepped.push_back(result.optimizer_stepped);
      continue;
    }
    const at::Tensor weight = state.buffers().front().flat->narrow(0, 100, 1);
    const at::Tensor before = weight.clone();
    weight.fill_(std::numeric_limits<double>::infinity());
    state.renew_compute_weights();
    const std::vector<at::Tensor> whole = copies_of(state);
    const int64_t committed = state.counters.committed_steps;
    const StepResult result = training.attempt();
    EXPECT_FALSE(result.committed);
    EXPECT_FALSE(result.optimizer_stepped);
    EXPECT_EQ(result.verdict.outcome, Outcome::kNonFinite);
    EXPECT_EQ(result.attempt, 1);
    EXPECT_EQ(state.counters.committed_steps, committed);
    expect_same_state(copies_of(state), whole);
    weight.copy_(before);
    state.renew_compute_weights();
  }
  trained.state = copies_of(state);
  trained.replays = TestGraph::replays() - replays;
  return trained;
}

class DeviceCommit : public ::testing::TestWithParam<Setting> {};

// The seventh step is not finite. As in the schedule's warm-up, some of the
// steps around it run the optimizer, and others only accumulate.
TEST_P(DeviceCommit, ANonFiniteStepChangesNothing) {
  constexpr int64_t kSteps = 9, kPoisoned = 6;
  Setting eager = GetParam();
  eager.cuda_graphs = false;
  const Trained expected = train(eager, kSteps, kPoisoned);
  const Trained found = train(GetParam(), kSteps, kPoisoned);
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.optimizer_stepped, expected.optimizer_stepped);
  expect_same_state(found.state, expected.state);
  EXPECT_GT(std::ranges::count(found.optimizer_stepped, false), 0);
  EXPECT_GT(std::ranges::count(found.optimizer_stepped, true), 4);
  for (const double loss : found.losses) EXPECT_TRUE(std::isfinite(loss));
  // The captured step is also replayed.
  const int64_t each = GetParam().micro_batch == 0 ? 1 : 2;
  EXPECT_EQ(found.replays, each * kSteps - CudaGraphRunner::kWarmUps);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, DeviceCommit,
    ::testing::Values(Setting{.cuda_graphs = true},
                      Setting{.cuda_graphs = true, .micro_batch = 2},
                      Setting{.cuda_graphs = true,
                              .optimizer = configs::OptimizerKind::kAdamW},
                      Setting{.cuda_graphs = true,
                              .precision = configs::Precision::kBf16}));

}  // namespace
}  // namespace headroom::step
