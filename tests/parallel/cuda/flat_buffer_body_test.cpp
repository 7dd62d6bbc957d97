// The kernels of a step's end, run on the CPU (tests/support/host_cuda),
// against worker/optim.
#include "parallel/cuda/kernels/flat_buffer_body.h"

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/cuda/kernel_arguments.h"
#include "worker/optim/optimizer.h"

namespace headroom::cuda {
namespace {

constexpr int64_t kSize = 21000;
const std::vector<devices::FlatBufferRange> kRanges = {
    {0, 5000, 1}, {5000, 40, 0}, {6000, 4096, 2}, {11000, 9000, 1}};
const optim::AllGroupSettings kGroups = {{{0.1, 0}, {0.01, 5e-4}, {0.02, 0}}};
constexpr double kMomentum = 0.9;

std::vector<optim::Segment> segments() {
  std::vector<optim::Segment> all;
  for (const devices::FlatBufferRange& range : kRanges) {
    all.push_back({range.offset, range.size, range.group});
  }
  return all;
}

struct State {
  at::Tensor parameters, gradients, accumulated, first, second, average;

  explicit State(at::ScalarType type) {
    const auto options = at::TensorOptions(type);
    at::manual_seed(3);
    parameters = at::randn({kSize}, options);
    gradients = at::randn({kSize}, options);
    accumulated = at::randn({kSize}, options);
    first = at::zeros({kSize}, options);
    second = at::zeros({kSize}, options);
    average = parameters.clone();
  }

  std::vector<at::Tensor> changed() const {
    return {parameters, accumulated, first, second, average};
  }
};

// A step's end as a card runs it.
struct End {
  std::vector<FlatBufferPiece> pieces = flat_buffer_pieces(kRanges, kSize);
  std::vector<double> partial = std::vector<double>(pieces.size(), -1);
  std::vector<double> items = {1, 2, 3};
  kernels::CommitNumbers numbers;
  kernels::CommitOutcome outcome;

  End() {
    numbers.ends_step = numbers.may_commit = true;
    numbers.steps_optimizer = true;
  }

  void run(const State& state, bool is_adam) {
    FlatBufferArguments arguments;
    arguments.is_double = state.parameters.scalar_type() == at::kDouble;
    arguments.parameters = state.parameters.mutable_data_ptr();
    arguments.gradients = state.gradients.const_data_ptr();
    arguments.accumulated = state.accumulated.mutable_data_ptr();
    arguments.first_moment = state.first.mutable_data_ptr();
    if (is_adam) arguments.second_moment = state.second.mutable_data_ptr();
    arguments.average = state.average.mutable_data_ptr();
    arguments.pieces = pieces.data();
    arguments.num_pieces = static_cast<int64_t>(pieces.size());
    arguments.numbers = &numbers;
    arguments.outcome = &outcome;
    arguments.partial = partial.data();
    const DecisionArguments decision = {partial.data(), arguments.num_pieces,
                                        items.data(), &numbers, &outcome};
    EXPECT_EQ(headroom_gradient_squares(&arguments, nullptr), 0);
    EXPECT_EQ(headroom_decide(&decision, nullptr), 0);
    EXPECT_EQ(headroom_commit(&arguments, nullptr), 0);
  }
};

void expect_equal(const State& a, const State& b) {
  EXPECT_TRUE(a.parameters.equal(b.parameters));
  EXPECT_TRUE(a.accumulated.equal(b.accumulated));
  EXPECT_TRUE(a.first.equal(b.first));
  EXPECT_TRUE(a.second.equal(b.second));
  // LibTorch's lerp may fuse a product and a sum.
  EXPECT_TRUE(a.average.allclose(b.average, 1e-6, 1e-7));
}

double norm_of(const State& state) {
  return std::sqrt(
      optim::squared_norm_of_sum(state.accumulated, state.gradients));
}

TEST(FlatBufferBody, SgdEqualsTheOptimizers) {
  State kernel(at::kFloat), optimizer(at::kFloat);
  for (int64_t update = 1; update <= 3; ++update) {
    const double norm = norm_of(optimizer);
    const double clip = optim::clip_coefficient(norm);
    optim::add_in_place(optimizer.accumulated, optimizer.gradients);
    optim::sgd_step(optimizer.parameters, optimizer.accumulated,
                    optimizer.first, segments(), kGroups, kMomentum, clip,
                    update == 1);
    optimizer.accumulated.zero_();
    optim::ema_update(optimizer.average, optimizer.parameters, update);

    End end;
    for (size_t g = 0; g < kGroups.size(); ++g) {
      end.numbers.sgd[g] = {kGroups[g].lr, kGroups[g].weight_decay, kMomentum,
                            99, update == 1};
    }
    end.numbers.average_weight = 1 - optim::ema_decay(update);
    end.run(kernel, /*is_adam=*/false);
    EXPECT_NEAR(std::sqrt(end.outcome.squared_norm) / norm, 1, 1e-12);
    EXPECT_EQ(end.outcome.commits, 1);
    EXPECT_EQ(end.outcome.items[2], 3);
    EXPECT_LT(end.outcome.clip, 0.1) << "it was clipped";
    expect_equal(kernel, optimizer);
  }
}

TEST(FlatBufferBody, AdamWEqualsTheOptimizers) {
  State kernel(at::kDouble), optimizer(at::kDouble);
  for (int64_t update = 1; update <= 3; ++update) {
    End end;
    for (size_t g = 0; g < kGroups.size(); ++g) {
      end.numbers.adam[g] = optim::adam_coefficients(
          kGroups[g], {kMomentum, update, 99, /*decoupled_decay=*/true});
    }
    end.numbers.average_weight = 1 - optim::ema_decay(update);
    // A scaled loss multiplies the gradients; the kernel divides them again.
    kernel.gradients.mul_(1024);
    end.numbers.gradient_scale = 1. / 1024;
    end.run(kernel, /*is_adam=*/true);
    kernel.gradients.div_(1024);

    optim::add_in_place(optimizer.accumulated, optimizer.gradients);
    optim::adam_step(
        optimizer.parameters, optimizer.accumulated, optimizer.first,
        optimizer.second, segments(), kGroups,
        {kMomentum, update, end.outcome.clip, /*decoupled_decay=*/true});
    optimizer.accumulated.zero_();
    optim::ema_update(optimizer.average, optimizer.parameters, update);
    expect_equal(kernel, optimizer);
  }
}

TEST(FlatBufferBody, BetweenOptimizerStepsGradientsAreAdded) {
  State kernel(at::kFloat), before(at::kFloat);
  End end;
  end.numbers.steps_optimizer = false;
  end.run(kernel, /*is_adam=*/false);
  EXPECT_TRUE(
      kernel.accumulated.equal(before.accumulated.add(before.gradients)));
  before.accumulated = kernel.accumulated;
  expect_equal(kernel, before);
}

// With a gradient or an item that is no number, or a veto of the host, the
// outcome reports it, and nothing is changed.
TEST(FlatBufferBody, ARejectedStepChangesNothing) {
  const double bad = std::numeric_limits<double>::quiet_NaN();
  for (const int what : {0, 1, 2, 3, 4}) {
    SCOPED_TRACE(what);
    for (const bool is_adam : {false, true}) {
      State state(at::kFloat), before(at::kFloat);
      End end;
      if (what == 0) state.gradients[kSize - 1] = bad;
      if (what == 1) state.gradients[7] = 1 / 0.;
      if (what == 2) end.items[1] = bad;
      if (what == 3) end.numbers.may_commit = false;
      if (what == 4) end.numbers.ends_step = false;
      end.outcome.commits = what == 4 ? 1 : -1;  // of an earlier step
      end.run(state, is_adam);
      EXPECT_EQ(end.outcome.commits, what == 4 ? 1 : 0);
      EXPECT_EQ(end.outcome.items[0], what == 4 ? 0 : 1);
      for (size_t i = 0; i < state.changed().size(); ++i) {
        EXPECT_TRUE(state.changed()[i].equal(before.changed()[i])) << i;
      }
    }
  }
}

TEST(FlatBufferBody, RunningStatisticsMoveAsTheCpus) {
  constexpr int64_t kCount = 300;  // more than a block
  at::manual_seed(4);
  const at::Tensor before = at::rand({kCount}),
                   sums = at::rand({2 * kCount}, at::kDouble);
  at::Tensor values = before.clone(), average = at::rand({kCount});
  const at::Tensor average_before = average.clone();
  std::vector<int64_t> places(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    places[static_cast<size_t>(i)] = 2 * kCount - 1 - i;
  }
  End end;
  end.numbers.num_groups = 4;
  end.numbers.average_weight = 0.25;
  RunningArguments arguments;
  arguments.statistics = values.mutable_data_ptr();
  arguments.average = average.mutable_data_ptr();
  arguments.sums = sums.const_data_ptr<double>();
  arguments.places = places.data();
  arguments.size = kCount;
  arguments.momentum = 0.03;
  arguments.numbers = &end.numbers;
  arguments.outcome = &end.outcome;
  const auto run = [&](double commits, bool steps_optimizer) {
    end.outcome.commits = commits;
    end.numbers.steps_optimizer = steps_optimizer;
    ASSERT_EQ(headroom_move_running(&arguments, nullptr), 0);
  };
  run(/*commits=*/0, true);
  EXPECT_TRUE(values.equal(before));
  run(/*commits=*/1, false);
  EXPECT_TRUE(average.equal(average_before));
  for (int64_t i = 0; i < kCount; ++i) {
    const double mean = sums[2 * kCount - 1 - i].item<double>() / 4;
    EXPECT_EQ(values[i].item<float>(),
              static_cast<float>((1 - 0.03) * before[i].item<double>() +
                                 0.03 * mean));
  }
  run(/*commits=*/1, true);
  EXPECT_TRUE(average.allclose(average_before.lerp(values, 0.25), 1e-6, 1e-7));
}

TEST(FlatBufferPieces, TileTheFlatBuffer) {
  int64_t done = 0;
  for (const FlatBufferPiece& piece : flat_buffer_pieces(kRanges, kSize)) {
    EXPECT_EQ(piece.offset, done);
    EXPECT_GT(piece.size, 0);
    EXPECT_LE(piece.size, kMostPieceElements);
    int group = -1;
    for (const devices::FlatBufferRange& range : kRanges) {
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
  const std::vector<devices::FlatBufferRange> overlap = {{0, 10, 0}, {9, 2, 0}};
  const std::vector<devices::FlatBufferRange> beyond = {{0, 11, 0}};
  const std::vector<devices::FlatBufferRange> group = {{0, 10, 3}};
  for (const auto& ranges : {overlap, beyond, group}) {
    EXPECT_THROW(flat_buffer_pieces(ranges, 10), CheckFailure);
  }
}

}  // namespace
}  // namespace headroom::cuda
