// Blocks on maps whose rows are split over ranks give the same outputs,
// gradients and statistics as on whole maps.
#include "tests/worker/model/split_rows.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <array>
#include <tuple>
#include <utility>

#include "parallel/base/check.h"
#include "tests/support/test_device/emulated_on_cpu.h"
#include "worker/model/halo_rows.h"
#include "worker/model/replay_log.h"
#include "worker/model/resampling.h"

namespace headroom::model {
namespace {

constexpr double kTolerance = 1e-12;

MakeLayer conv(int64_t c_in, int64_t c_out, int64_t kernel, int64_t stride,
               int64_t padding) {
  return module_layer(
      "Conv", c_in,
      {double(c_out), double(kernel), double(stride), double(padding)});
}

MakeLayer sppf(int64_t channels) {
  return module_layer("SPPF", channels, {double(channels), 5.0});
}

void expect_equal_to_whole(const SplitCase& c) {
  SCOPED_TRACE(std::to_string(c.blocks) + " blocks of " +
               std::to_string(c.rows_per_block) + " rows over " +
               std::to_string(c.ranks) + " ranks");
  const LayerOutcome whole = run_whole(c);
  const LayerOutcome split = run_split(c, whole.out);
  EXPECT_LE(largest_difference(split.out, whole.out), kTolerance);
  EXPECT_LE(largest_difference(split.dx, whole.dx), kTolerance);
  EXPECT_LE(largest_difference(split.batch_norm_sums, whole.batch_norm_sums),
            kTolerance);
  ASSERT_EQ(split.gradients.size(), whole.gradients.size());
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    // A bias before a linear map and a batch norm has no effect: the difference
    // is rounding.
    constexpr double kNothing = 1e-11;
    if (whole.gradients[i].abs().max().item<double>() < kNothing) {
      EXPECT_LT(split.gradients[i].abs().max().item<double>(), kNothing);
      continue;
    }
    EXPECT_LE(largest_difference(split.gradients[i], whole.gradients[i]),
              kTolerance)
        << "parameter " << i;
  }
}

// kernel, stride, padding; ranks
class SplitConv
    : public testing::TestWithParam<std::tuple<std::array<int64_t, 3>, int>> {};

TEST_P(SplitConv, EqualsTheWhole) {
  const auto& [shape, ranks] = GetParam();
  const auto& [kernel, stride, padding] = shape;
  SplitCase c;
  c.make = conv(3, 5, kernel, stride, padding);
  c.channels = 3;
  c.width = 8;
  c.ranks = ranks;
  // The ranks have equal or unequal heights, down to a single output row.
  for (const int64_t blocks : {ranks, ranks + 1, 2 * ranks + 1})
    for (const int64_t output_rows : {1, 3}) {
      c.blocks = blocks;
      c.rows_per_block = output_rows * stride;
      expect_equal_to_whole(c);
    }
  c.group_sizes = {1, 2, 1};
  expect_equal_to_whole(c);
}

INSTANTIATE_TEST_SUITE_P(
    KernelStridePadding, SplitConv,
    testing::Combine(testing::Values(std::array<int64_t, 3>{6, 2, 2},
                                     std::array<int64_t, 3>{3, 2, 1},
                                     std::array<int64_t, 3>{3, 1, 1},
                                     std::array<int64_t, 3>{1, 1, 0},
                                     std::array<int64_t, 3>{1, 2, 0},
                                     std::array<int64_t, 3>{7, 1, 3}),
                     testing::Values(2, 3, 4)));

TEST(SplitRows, AWholeBlockOfConvolutionsEqualsTheWhole) {
  SplitCase c;
  c.channels = 6;
  c.width = 5;
  c.ranks = 3;
  c.group_sizes = {2, 1};
  for (const int64_t blocks : {3, 5}) {
    c.blocks = blocks;
    for (const int64_t rows_per_block : {1, 2}) {
      c.rows_per_block = rows_per_block;
      for (const MakeLayer& layer :
           {module_layer("Bottleneck", 6, {6.0}),
            module_layer("C3", 6, {8.0}, 2),
            module_layer("C3Ghost", 6, {16.0}, 2),
            module_layer("GhostConv", 6, {8.0, 3.0, 1.0}),
            module_layer("DWConv", 6, {12.0, 5.0, 1.0}, 1, layers::kRelu),
            module_layer("Conv", 6, {4.0, 3.0, 1.0, "None", 2.0}, 1,
                         {layers::ActivationKind::kMish}),
            module_layer("SPP", 6, {6.0}),
            module_layer("ShuffleNetV2", 6, {6.0, 1.0}, 2),
            module_layer("SqueezeExcitation", 6, {}),
            module_layer("InvertedResidual", 6,
                         {6.0, 12.0, 3.0, 1.0, "True", "HS"}),
            module_layer("nn.ConvTranspose2d", 6, {4.0, 2.0, 2.0})}) {
        c.make = layer;
        expect_equal_to_whole(c);
      }
    }
  }
}

// The six rows around a rank's own rows are on up to three neighbours, or
// beyond the edge.
TEST(SplitRows, PoolingEqualsTheWhole) {
  SplitCase c;
  c.make = sppf(6);
  c.channels = 6;
  c.width = 7;
  c.group_sizes = {1, 2};
  for (const int ranks : {1, 2, 3, 4})
    for (const int64_t blocks : {ranks, ranks + 1, 3 * ranks + 2}) {
      c.ranks = ranks;
      c.blocks = blocks;
      for (const int64_t rows_per_block : {1, 2}) {
        c.rows_per_block = rows_per_block;
        expect_equal_to_whole(c);
      }
    }
}

// Each rank pools its rows with a device's kernels.
TEST(SplitRows, PoolingOnDevicesEqualsTheWhole) {
  at::manual_seed(9);
  const at::Tensor whole =
      map_leaf(at::rand({2, 8, 10, 7}, at::kDouble).mul_(4).floor_());
  const std::vector<int64_t> windows = {5, 5, 5};
  const at::Tensor out = chained_pools(whole, windows, StepContext{});
  const at::Tensor dout = output_weights(out);
  out.backward(dout);
  SplitCase c;
  c.make = sppf(8);
  c.channels = 8;
  c.blocks = 5;
  c.rows_per_block = 2;
  c.width = 7;
  c.ranks = 3;
  BuiltMapLayer built(c.make);
  std::vector<at::Tensor> outs(3), dx(3);
  const EmulatedOnCpu device;
  run_ranks(3, [&](int rank, collectives::Communicator& communicator) {
    SplitRank here(c, communicator, built.state);
    StepContext context;
    context.halo = &here.halo;
    const at::Tensor own = map_leaf(here.own(whole, c));
    const at::Tensor part = chained_pools(own, windows, context);
    part.backward(here.own(dout, c));
    outs[static_cast<size_t>(rank)] = part.detach();
    dx[static_cast<size_t>(rank)] = own.grad();
  });
  EXPECT_TRUE(at::cat(outs, 2).equal(out));
  EXPECT_LE(largest_difference(at::cat(dx, 2), whole.grad()), kTolerance);
}

// The pixels have only two values. So many are equal, and only the order of
// windows decides which of them gets a gradient.
TEST(SplitRows, PoolingBreaksTiesAsOnTheWhole) {
  at::set_num_threads(1);
  SplitCase c;
  c.make = sppf(2);
  c.channels = 2;
  c.blocks = 5;
  c.width = 9;
  c.ranks = 3;
  BuiltMapLayer built(c.make);
  at::manual_seed(8);
  const at::Tensor x = map_leaf(
      at::rand({8, 1, 5, 9}, at::kDouble).round_().expand({8, 2, 5, 9}));
  const at::Tensor out = built.apply(x, StepContext{});
  const at::Tensor dout = output_weights(out);
  out.backward(dout);
  std::vector<at::Tensor> dx(3);
  run_ranks(3, [&](int rank, collectives::Communicator& communicator) {
    BuiltMapLayer split(c.make);
    SplitRank here(c, communicator, split.state);
    StepContext context;
    context.halo = &here.halo;
    const at::Tensor own = map_leaf(here.own(x, c));
    split.apply(own, context).backward(here.own(dout, c));
    dx[static_cast<size_t>(rank)] = own.grad();
  });
  EXPECT_LE(largest_difference(at::cat(dx, 2), x.grad()), kTolerance);
}

// A recomputed layer takes received data from the replay log.
TEST(SplitRows, AReplayIsIdenticalAndSendsNothing) {
  SplitCase c;
  c.channels = 6;
  c.blocks = 5;
  c.rows_per_block = 2;
  c.width = 5;
  c.ranks = 3;
  const std::vector<MakeLayer> makes = {conv(6, 4, 3, 2, 1), sppf(6),
                                        module_layer("C3", 6, {8.0}, 2),
                                        module_layer("C3Ghost", 6, {8.0})};
  for (const MakeLayer& make : makes) {
    c.make = make;
    const at::Tensor x = whole_input(c), whole_out = run_whole(c).out;
    const at::Tensor whole_dout = output_weights(whole_out);
    run_ranks(c.ranks, [&](int, collectives::Communicator& communicator) {
      BuiltMapLayer once(c.make), again(c.make);
      SplitRank here(c, communicator, once.state);
      const at::Tensor first_x = map_leaf(here.own(x, c));
      const at::Tensor first = once.apply(first_x, here.context);
      const int64_t forward_bytes = here.ranks.bytes();
      EXPECT_GT(forward_bytes, 0);
      const at::Tensor dout = here.own(whole_dout, c);
      first.backward(dout);
      const int64_t step_bytes = here.ranks.bytes();

      ReplayLog replay_log;
      here.context.replay_log = &replay_log;
      here.context.batch_norm_sums.zero_();
      const at::Tensor again_x = map_leaf(here.own(x, c));
      {
        const at::NoGradGuard no_grad;
        EXPECT_TRUE(at::equal(again.apply(again_x, here.context), first));
      }
      EXPECT_EQ(here.ranks.bytes(), step_bytes + forward_bytes);
      const at::Tensor sums = here.context.batch_norm_sums.clone();
      replay_log.start_replay();
      const at::Tensor replayed = again.apply(again_x, here.context);
      EXPECT_EQ(here.ranks.bytes(), step_bytes + forward_bytes);
      EXPECT_TRUE(at::equal(here.context.batch_norm_sums, sums));
      EXPECT_TRUE(at::equal(replayed, first));
      replayed.backward(dout);
      EXPECT_EQ(here.ranks.bytes(), 2 * step_bytes);
      EXPECT_TRUE(at::equal(again_x.grad(), first_x.grad()));
      const auto expected = once.gradients(), actual = again.gradients();
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(at::equal(actual[i], expected[i])) << "parameter " << i;
    });
  }
}

TEST(SplitRows, WithoutSamplesEveryParameterIsVisited) {
  SplitCase c;
  c.make = sppf(6);
  c.channels = 6;
  c.blocks = 4;
  c.width = 5;
  c.ranks = 2;
  c.group_sizes = {};
  run_ranks(c.ranks, [&](int, collectives::Communicator& communicator) {
    BuiltMapLayer built(c.make);
    SplitRank here(c, communicator, built.state);
    const at::Tensor x = map_leaf(at::zeros({0, 6, 2, 5}, at::kDouble));
    const at::Tensor out = built.apply(x, here.context);
    EXPECT_EQ(out.sizes(), at::IntArrayRef({0, 6, 2, 5}));
    out.backward(at::zeros_like(out));
    EXPECT_EQ(x.grad().sizes(), x.sizes());
    for (const at::Tensor& gradient : built.gradients())
      EXPECT_EQ(gradient.abs().sum().item<double>(), 0);
  });
}

TEST(SplitRows, StatisticsNeedAnExchange) {
  SplitCase c;
  c.make = conv(3, 4, 1, 1, 0);
  c.channels = 3;
  c.blocks = 4;
  c.ranks = 2;
  run_ranks(c.ranks, [&](int, collectives::Communicator& communicator) {
    BuiltMapLayer built(c.make);
    SplitRank here(c, communicator, built.state);
    here.context.exchange = nullptr;
    EXPECT_THROW(built.apply(here.own(whole_input(c), c), here.context),
                 CheckFailure);
  });
}

TEST(HaloRows, ReachOfTheUsualKernels) {
  const auto reach = [](int64_t kernel, int64_t stride, int64_t padding) {
    const HaloReach r = convolution_reach(kernel, stride, padding);
    return std::pair(r.top, r.bottom);
  };
  EXPECT_EQ(reach(3, 1, 1), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(reach(3, 2, 1), std::pair(int64_t{1}, int64_t{0}));
  EXPECT_EQ(reach(6, 2, 2), std::pair(int64_t{2}, int64_t{2}));
  EXPECT_EQ(reach(1, 1, 0), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(reach(1, 2, 0), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_THROW(reach(3, 1, 0), CheckFailure);  // shrinks maps
  EXPECT_THROW(reach(1, 1, 1), CheckFailure);  // grows them
}

}  // namespace
}  // namespace headroom::model
