// A step's end on a GPU: norm and decision, then SGD, Adam or AdamW by the
// device's decision, against the CPU's; and rejected steps.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "parallel/devices/device_kernels.h"
#include "tests/parallel/cuda/plugin.h"
#include "worker/optim/optimizer.h"

namespace headroom::cuda {
namespace {

constexpr int64_t kSize = 50'021;
constexpr double kBeta1 = 0.9;

// Between the two are values that are only averaged: frozen layers, padding.
const std::vector<devices::FlatBufferRange> kRanges = {{0, 30'001, 1},
                                                       {40'000, 10'021, 2}};
const std::vector<optim::Segment> kSegments = {{0, 30'001, 1},
                                               {40'000, 10'021, 2}};
const optim::AllGroupSettings kGroups = {{{0.1, 0}, {0.01, 5e-4}, {0.02, 0}}};

enum class Rule { kSgd, kAdam, kAdamW };

template <typename Value>
at::Tensor bytes_on_card(const Value& value) {
  at::Tensor bytes = at::empty({sizeof(value)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &value, sizeof(value));
  return bytes.to(at::kCUDA);
}

struct State {
  devices::FlatBuffers buffers;

  State(at::ScalarType type, Rule rule) {
    const auto random = [type] { return at::randn({kSize}, type); };
    buffers = {random(), random(), random(), at::zeros({kSize}, type), {}, {}};
    if (rule != Rule::kSgd) buffers.second = at::zeros({kSize}, type);
    buffers.average = buffers.parameters.clone();
  }

  static std::vector<at::Tensor> tensors(const devices::FlatBuffers& of) {
    std::vector<at::Tensor> all = {of.parameters, of.gradients, of.accumulated,
                                   of.first, of.average};
    if (of.second.defined()) all.push_back(of.second);
    return all;
  }

  devices::FlatBuffers on_device() const {
    return {
        buffers.parameters.to(at::kCUDA),
        buffers.gradients.to(at::kCUDA),
        buffers.accumulated.to(at::kCUDA),
        buffers.first.to(at::kCUDA),
        buffers.second.defined() ? buffers.second.to(at::kCUDA) : at::Tensor(),
        buffers.average.to(at::kCUDA)};
  }
};

kernels::CommitNumbers numbers_of(Rule rule, int64_t update) {
  kernels::CommitNumbers numbers;
  numbers.ends_step = numbers.may_commit = numbers.steps_optimizer = true;
  for (size_t g = 0; g < kGroups.size(); ++g) {
    numbers.sgd[g] = {kGroups[g].lr, kGroups[g].weight_decay, kBeta1, 99,
                      update == 1};
    numbers.adam[g] = optim::adam_coefficients(
        kGroups[g], {kBeta1, update, 99, rule == Rule::kAdamW});
  }
  numbers.average_weight = 1 - optim::ema_decay(update);
  return numbers;
}

kernels::CommitOutcome end_step(devices::DeviceOptimizer& optimizer,
                                const devices::FlatBuffers& buffers,
                                const kernels::CommitNumbers& numbers,
                                const at::Tensor& items) {
  const auto doubles = at::TensorOptions(at::kCUDA).dtype(at::kDouble);
  const devices::CommitPlace place = {
      bytes_on_card(numbers), at::zeros({kernels::kOutcomeDoubles}, doubles)};
  const at::Tensor partial = at::empty({optimizer.num_partial()}, doubles);
  optimizer.squares(buffers, place, partial);
  plugin().api->kernels().decide(partial, items.to(at::kCUDA), place);
  optimizer.commit(buffers, place);
  kernels::CommitOutcome outcome;
  const at::Tensor found = place.outcome.cpu();
  std::memcpy(&outcome, found.const_data_ptr(), sizeof(outcome));
  return outcome;
}

class DeviceOptimizer : public ::testing::TestWithParam<Rule> {};

TEST_P(DeviceOptimizer, EqualsTheCpus) {
  HEADROOM_NEEDS_DEVICE();
  const Rule rule = GetParam();
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    at::manual_seed(11);
    const State host(type, rule);
    const devices::FlatBuffers& cpu = host.buffers;
    const devices::FlatBuffers device = host.on_device();
    const auto optimizer =
        plugin().api->kernels().make_optimizer(0, kRanges, kSize);
    for (int64_t update = 1; update <= 3; ++update) {
      const kernels::CommitOutcome outcome =
          end_step(*optimizer, device, numbers_of(rule, update),
                   at::ones({3}, at::kDouble));
      const double norm =
          std::sqrt(optim::squared_norm_of_sum(cpu.accumulated, cpu.gradients));
      EXPECT_NEAR(std::sqrt(outcome.squared_norm) / norm, 1, 1e-10);
      EXPECT_EQ(outcome.commits, 1);
      const double clip = optim::clip_coefficient(norm);
      EXPECT_NEAR(outcome.clip, clip, 1e-10);
      optim::add_in_place(cpu.accumulated, cpu.gradients);
      if (rule == Rule::kSgd) {
        optim::sgd_step(cpu.parameters, cpu.accumulated, cpu.first, kSegments,
                        kGroups, kBeta1, clip, update == 1);
      } else {
        optim::adam_step(cpu.parameters, cpu.accumulated, cpu.first, cpu.second,
                         kSegments, kGroups,
                         {kBeta1, update, clip, rule == Rule::kAdamW});
      }
      cpu.accumulated.zero_();
      optim::ema_update(cpu.average, cpu.parameters, update);
    }
    const std::vector<at::Tensor> expected = State::tensors(cpu);
    const std::vector<at::Tensor> found = State::tensors(device);
    const double within = type == at::kDouble ? 1e-10 : 1e-5;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(found[i].cpu().allclose(expected[i], within, within)) << i;
    }
  }
}

// With a gradient or an item that is no number the outcome reports it, and
// nothing is changed.
TEST_P(DeviceOptimizer, ANonFiniteStepChangesNothing) {
  HEADROOM_NEEDS_DEVICE();
  const double bad = std::numeric_limits<double>::quiet_NaN();
  for (const bool in_gradient : {true, false}) {
    at::manual_seed(12);
    const State host(at::kFloat, GetParam());
    at::Tensor items = at::ones({3}, at::kDouble);
    if (in_gradient) {
      host.buffers.gradients[35'000] = bad;  // in no range
    } else {
      items[1] = bad;
    }
    const devices::FlatBuffers device = host.on_device();
    const auto optimizer =
        plugin().api->kernels().make_optimizer(0, kRanges, kSize);
    EXPECT_EQ(
        end_step(*optimizer, device, numbers_of(GetParam(), 1), items).commits,
        0);
    const std::vector<at::Tensor> before = State::tensors(host.buffers);
    const std::vector<at::Tensor> after = State::tensors(device);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_TRUE(after[i].cpu().allclose(before[i], 0, 0, /*equal_nan=*/true))
          << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, DeviceOptimizer,
                         ::testing::Values(Rule::kSgd, Rule::kAdam,
                                           Rule::kAdamW));

TEST(DeviceRunning, MovesAsTheCpus) {
  HEADROOM_NEEDS_DEVICE();
  constexpr int64_t kCount = 1000;
  at::manual_seed(13);
  const at::Tensor values = at::rand({kCount}, at::kDouble);
  const at::Tensor sums = at::rand({kCount}, at::kDouble);
  kernels::CommitNumbers numbers;
  numbers.ends_step = numbers.steps_optimizer = true;
  numbers.num_groups = 3;
  numbers.average_weight = 0.25;
  kernels::CommitOutcome outcome;
  outcome.commits = 1;
  const devices::CommitPlace place = {bytes_on_card(numbers),
                                      bytes_on_card(outcome).view(at::kDouble)};
  const at::Tensor average = values.clone().to(at::kCUDA);
  const devices::RunningStatistics running = {
      values.to(at::kCUDA), average, sums.to(at::kCUDA),
      at::arange(kCount, at::kLong).to(at::kCUDA), 0.03};
  plugin().api->kernels().move_running(running, place);
  const at::Tensor expected = values * 0.97 + sums / 3 * 0.03;
  EXPECT_TRUE(running.values.cpu().allclose(expected, 1e-12, 1e-12));
  EXPECT_TRUE(
      average.cpu().allclose(values.lerp(expected, 0.25), 1e-12, 1e-12));
}

}  // namespace
}  // namespace headroom::cuda
