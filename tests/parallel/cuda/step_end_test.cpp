// Compares the end of a step on a device with worker/optim: gradient norm and
// decision, SGD, Adam and AdamW with the EMA, and the running statistics.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/cuda/kernel_arguments.h"
#include "tests/parallel/cuda/kernels_under_test.h"
#include "worker/optim/optimizer.h"

namespace headroom::cuda {
namespace {

using kernels::CommitNumbers;
using kernels::CommitOutcome;
using kernels::FlatBuffers;

constexpr int64_t kSize = 21000;
// The values between these ranges (frozen layers, padding) are only averaged.
const std::vector<kernels::FlatBufferRange> kRanges = {
    {0, 5000, 1}, {5000, 40, 0}, {6000, 4096, 2}, {11000, 9000, 1}};
const optim::AllGroupSettings kGroups = {{{0.1, 0}, {0.01, 5e-4}, {0.02, 0}}};
constexpr double kMomentum = 0.9;

enum class Rule { kSgd, kAdam, kAdamW };

std::vector<optim::Segment> segments() {
  std::vector<optim::Segment> all;
  for (const kernels::FlatBufferRange& range : kRanges) {
    all.push_back({range.offset, range.size, range.group});
  }
  return all;
}

FlatBuffers random_buffers(at::ScalarType type, Rule rule) {
  at::manual_seed(3);
  const auto random = [type] { return at::randn({kSize}, type); };
  FlatBuffers buffers = {random(), random(), random(), at::zeros({kSize}, type),
                         {},       {},       {}};
  if (rule != Rule::kSgd) buffers.second = at::zeros({kSize}, type);
  buffers.average = buffers.parameters.clone();
  return buffers;
}

FlatBuffers on_device(const FlatBuffers& of) {
  const KernelsUnderTest& to = under_test();
  return {to.there(of.parameters),
          to.there(of.gradients),
          to.there(of.accumulated),
          to.there(of.first),
          to.there(of.second),
          to.there(of.average),
          to.kernels->make_pieces(to.device, kRanges, kSize)};
}

// Expects small differences in each buffer that a step changes.
void expect_close(const FlatBuffers& found, const FlatBuffers& expected,
                  double tolerance) {
  const auto expect = [&](const char* name, at::Tensor FlatBuffers::*buffer,
                          double within) {
    if (!(expected.*buffer).defined()) return;
    EXPECT_TRUE((found.*buffer)
                    .cpu()
                    .allclose(expected.*buffer, within, within,
                              /*equal_nan=*/true))
        << name;
  };
  expect("parameters", &FlatBuffers::parameters, tolerance);
  expect("accumulated", &FlatBuffers::accumulated, tolerance);
  expect("first moment", &FlatBuffers::first, tolerance);
  expect("second moment", &FlatBuffers::second, tolerance);
  // LibTorch's lerp may fuse a multiplication and an addition.
  expect("average", &FlatBuffers::average, std::max(tolerance, 1e-6));
}

template <typename Value>
at::Tensor bytes_there(const Value& value) {
  const at::Tensor bytes = at::empty({sizeof(value)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &value, sizeof(value));
  return under_test().there(bytes);
}

// The numbers that the end of a step needs, and its outcome.
struct End {
  CommitNumbers numbers;
  CommitOutcome outcome;
  at::Tensor items = at::tensor({1., 2., 3., 0.}, at::kDouble);
  // Of several ranks.
  at::Tensor objections;
  at::Tensor failure_word;  // where kernels can read it

  explicit End(Rule rule = Rule::kSgd, int64_t update = 1) {
    numbers.ends_step = numbers.may_commit = numbers.steps_optimizer = true;
    for (size_t g = 0; g < kGroups.size(); ++g) {
      numbers.sgd[g] = {kGroups[g].lr, kGroups[g].weight_decay, kMomentum, 99,
                        update == 1};
      numbers.adam[g] = optim::adam_coefficients(
          kGroups[g], {kMomentum, update, 99, rule == Rule::kAdamW});
    }
    numbers.average_weight = 1 - optim::ema_decay(update);
  }

  kernels::CommitPlace place() const {
    return {
        bytes_there(numbers), bytes_there(outcome).view(at::kDouble),
        under_test().there(items),
        objections.defined() ? under_test().there(objections) : at::Tensor(),
        failure_word.defined() ? failure_word.const_data_ptr<int32_t>()
                               : nullptr};
  }

  void run(const FlatBuffers& buffers) {
    kernels::DeviceKernels& device = *under_test().kernels;
    const kernels::CommitPlace where = place();
    const at::Tensor partial =
        under_test().there(at::full({buffers.pieces.size(0)}, -1, at::kDouble));
    device.squares(buffers, where, partial);
    device.decide(partial, where);
    device.commit(buffers, where);
    const at::Tensor found = where.outcome.cpu();
    std::memcpy(&outcome, found.const_data_ptr(), sizeof(outcome));
  }
};

void step_on_cpu(const FlatBuffers& cpu, Rule rule, int64_t update,
                 double clip) {
  optim::add_in_place(cpu.accumulated, cpu.gradients);
  if (rule == Rule::kSgd) {
    optim::sgd_step(cpu.parameters, cpu.accumulated, cpu.first, segments(),
                    kGroups, kMomentum, clip, update == 1);
  } else {
    optim::adam_step(cpu.parameters, cpu.accumulated, cpu.first, cpu.second,
                     segments(), kGroups,
                     {kMomentum, update, clip, rule == Rule::kAdamW});
  }
  cpu.accumulated.zero_();
  optim::ema_update(cpu.average, cpu.parameters, update);
}

class DeviceStepEnd
    : public ::testing::TestWithParam<std::tuple<Rule, at::ScalarType>> {};

TEST_P(DeviceStepEnd, EqualsTheCpus) {
  HEADROOM_NEEDS_KERNELS();
  const auto [rule, type] = GetParam();
  const FlatBuffers cpu = random_buffers(type, rule);
  const FlatBuffers device = on_device(cpu);
  // A scaled loss multiplies the gradients; the kernels must divide them by the
  // scale.
  device.gradients.mul_(1024);
  for (int64_t update = 1; update <= 3; ++update) {
    const double norm =
        std::sqrt(optim::squared_norm_of_sum(cpu.accumulated, cpu.gradients));
    End end(rule, update);
    end.numbers.gradient_scale = 1. / 1024;
    end.run(device);
    EXPECT_NEAR(std::sqrt(end.outcome.squared_norm) / norm, 1, 1e-10);
    EXPECT_NEAR(end.outcome.clip, optim::clip_coefficient(norm), 1e-10);
    EXPECT_LT(end.outcome.clip, 0.1) << "it was clipped";
    EXPECT_EQ(end.outcome.commits, 1);
    EXPECT_EQ(end.outcome.items[2], 3);
    step_on_cpu(cpu, rule, update, end.outcome.clip);
  }
  const bool is_exact = under_test().device.is_cpu();
  expect_close(device, cpu, is_exact ? 0 : type == at::kDouble ? 1e-10 : 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, DeviceStepEnd,
    ::testing::Combine(::testing::Values(Rule::kSgd, Rule::kAdam, Rule::kAdamW),
                       ::testing::Values(at::kFloat, at::kDouble)));

TEST(DeviceStepEnds, BetweenOptimizerStepsGradientsAreAdded) {
  HEADROOM_NEEDS_KERNELS();
  const FlatBuffers cpu = random_buffers(at::kFloat, Rule::kSgd);
  const FlatBuffers device = on_device(cpu);
  End end;
  end.numbers.steps_optimizer = false;
  end.run(device);
  cpu.accumulated.add_(cpu.gradients);
  expect_close(device, cpu, 0);
}

// If a gradient or an item is not finite, the host vetoes the step, or a peer
// rejects it, the outcome reports this and nothing changes.
TEST(DeviceStepEnds, ARejectedStepChangesNothing) {
  HEADROOM_NEEDS_KERNELS();
  const double bad = std::numeric_limits<double>::quiet_NaN();
  for (const std::string why :
       {"NaN, in no range", "infinity", "item", "veto", "peer", "no end"}) {
    SCOPED_TRACE(why);
    for (const Rule rule : {Rule::kSgd, Rule::kAdamW}) {
      const FlatBuffers cpu = random_buffers(at::kFloat, rule);
      End end(rule);
      const bool ends = why != "no end";
      if (why == "NaN, in no range") cpu.gradients[kSize - 1] = bad;
      if (why == "infinity") cpu.gradients[7] = 1 / 0.;
      if (why == "item") end.items[1] = bad;
      end.numbers.may_commit = why != "veto";
      if (why == "peer") end.objections = at::ones({1}, at::kDouble);
      end.numbers.ends_step = ends;
      end.outcome.commits = ends ? -1 : 1;  // the value of an earlier step
      const FlatBuffers device = on_device(cpu);
      end.run(device);
      EXPECT_EQ(end.outcome.commits, ends ? 0 : 1);
      EXPECT_EQ(end.outcome.items[0], ends ? 1 : 0);
      expect_close(device, cpu, 0);
    }
  }
}

// Sums that were aborted have undefined values, which may look good.
TEST(DeviceStepEnds, AStepWhoseSumsFailedChangesNothing) {
  HEADROOM_NEEDS_KERNELS();
  for (const bool has_failed : {false, true}) {
    SCOPED_TRACE(has_failed);
    const FlatBuffers cpu = random_buffers(at::kFloat, Rule::kSgd);
    const FlatBuffers device = on_device(cpu);
    End end;
    end.numbers.steps_optimizer = false;
    end.objections = at::zeros({1}, at::kDouble);
    end.failure_word =
        under_test().there(at::full({1}, has_failed ? 1 : 0, at::kInt));
    end.run(device);
    EXPECT_EQ(end.outcome.is_complete, has_failed ? 0 : 1);
    EXPECT_EQ(end.outcome.commits, has_failed ? 0 : 1);
    if (!has_failed) cpu.accumulated.add_(cpu.gradients);
    expect_close(device, cpu, 0);
  }
}

TEST(DeviceStepEnds, RunningStatisticsMoveIfTheStepCounts) {
  HEADROOM_NEEDS_KERNELS();
  constexpr int64_t kCount = 300;  // more than one block
  at::manual_seed(4);
  const at::Tensor before = at::rand({kCount}), average = at::rand({kCount}),
                   sums = at::rand({2 * kCount}, at::kDouble),
                   places = 2 * kCount - 1 - at::arange(kCount, at::kLong);
  const KernelsUnderTest& to = under_test();
  const kernels::RunningStatistics running = {to.there(before),
                                              to.there(average), to.there(sums),
                                              to.there(places), 0.03};
  End end;
  end.numbers.num_groups = 4;
  end.numbers.average_weight = 0.25;
  const auto run = [&](double commits, bool steps_optimizer) {
    end.outcome.commits = commits;
    end.numbers.steps_optimizer = steps_optimizer;
    to.kernels->move_running(running, end.place());
  };
  run(/*commits=*/0, true);
  EXPECT_TRUE(running.values.cpu().equal(before));
  run(/*commits=*/1, false);
  EXPECT_TRUE(running.average.cpu().equal(average));
  const at::Tensor mean = sums.index_select(0, places) / 4;
  EXPECT_TRUE(running.values.cpu().allclose(
      (before.to(at::kDouble) * 0.97 + mean * 0.03).to(at::kFloat), 2e-7, 0));
  run(/*commits=*/1, true);
  EXPECT_TRUE(running.average.cpu().allclose(
      average.lerp(running.values.cpu(), 0.25), 1e-6, 1e-7));
}

TEST(FlatBufferPieces, TileTheFlatBuffer) {
  int64_t done = 0;
  for (const FlatBufferPiece& piece : flat_buffer_pieces(kRanges, kSize)) {
    EXPECT_EQ(piece.offset, done);
    EXPECT_GT(piece.size, 0);
    EXPECT_LE(piece.size, kMostPieceElements);
    int group = -1;
    for (const kernels::FlatBufferRange& range : kRanges) {
      if (piece.offset >= range.offset &&
          piece.offset < range.offset + range.size) {
        group = range.group;
        EXPECT_LE(piece.offset + piece.size, range.offset + range.size);
      }
    }
    EXPECT_EQ(piece.group, group);
    done += piece.size;
  }
  EXPECT_EQ(done, kSize);
  EXPECT_TRUE(flat_buffer_pieces({}, 0).empty());
}

TEST(FlatBufferPieces, RefusesRangesThatOverlap) {
  const std::vector<kernels::FlatBufferRange> overlap = {{0, 10, 0}, {9, 2, 0}};
  const std::vector<kernels::FlatBufferRange> beyond = {{0, 11, 0}};
  const std::vector<kernels::FlatBufferRange> group = {{0, 10, 3}};
  for (const auto& ranges : {overlap, beyond, group}) {
    EXPECT_THROW(flat_buffer_pieces(ranges, 10), CheckFailure);
  }
}

}  // namespace
}  // namespace headroom::cuda
