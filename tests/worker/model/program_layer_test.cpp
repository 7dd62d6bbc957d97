// The operations of a layer equal LibTorch's own, forward and backward.
#include "worker/model/layer_factory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/channel_shuffle.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/worker/model/split_rows.h"
#include "worker/kernels/cpu/cell_sums.h"
#include "worker/model/convolution_modules.h"
#include "worker/model/resampling.h"

namespace headroom::model {
namespace {

constexpr double kTolerance = 1e-13;

using Function = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor random_map(int64_t channels, int64_t height, int64_t width) {
  at::manual_seed(3);
  return at::randn({2, channels, height, width}, at::kDouble);
}

// Checks that values, layout and gradients of `ours` equal those of `theirs`.
void expect_same(const at::Tensor& x, const Function& ours,
                 const Function& theirs) {
  const at::Tensor a = map_leaf(x), b = map_leaf(x);
  const at::Tensor out = ours(a), expected = theirs(b);
  EXPECT_TRUE(out.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_LE(largest_difference(out, expected), kTolerance);
  const at::Tensor dout = at::randn_like(expected);
  out.backward(dout);
  expected.backward(dout);
  EXPECT_LE(largest_difference(a.grad(), b.grad()), kTolerance);
}

TEST(Resampling, FoldedCellsAreYolov5sFocus) {
  expect_same(
      random_map(3, 6, 8),
      [](const at::Tensor& x) { return folded_map(x, StepContext()); },
      [](const at::Tensor& x) {
        const auto every_second = [&x](int64_t row, int64_t column) {
          return x.slice(2, row, x.size(2), 2).slice(3, column, x.size(3), 2);
        };
        return at::cat({every_second(0, 0), every_second(1, 0),
                        every_second(0, 1), every_second(1, 1)},
                       1);
      });
}

TEST(Resampling, AChainOfPoolsIsPoolsOfWiderWindows) {
  expect_same(
      random_map(4, 15, 17),
      [](const at::Tensor& x) {
        return chained_pools(x, {5, 5, 5}, StepContext());
      },
      [](const at::Tensor& x) {
        std::vector<at::Tensor> maps = {x};
        for (const int64_t window : {5, 9, 13})
          maps.push_back(at::max_pool2d(x, {window, window}, {1, 1},
                                        {window / 2, window / 2}));
        return at::cat(maps, 1);
      });
}

TEST(Resampling, ShuffledChannels) {
  expect_same(
      random_map(6, 5, 4),
      [](const at::Tensor& x) { return shuffled_map(x, 2, StepContext()); },
      [](const at::Tensor& x) { return at::channel_shuffle(x, 2); });
}

TEST(Resampling, SlicedChannels) {
  expect_same(
      random_map(6, 5, 4),
      [](const at::Tensor& x) { return sliced_map(x, 2, 3, StepContext()); },
      [](const at::Tensor& x) { return x.narrow(1, 2, 3); });
}

TEST(TransposedConv, IsATransposedConvolution) {
  at::manual_seed(4);
  for (const int64_t k : {2, 3}) {
    const at::Tensor weight = at::randn({5, 4, k, k}, at::kDouble)
                                  .contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor bias = at::randn({4}, at::kDouble);
    at::Tensor parameters[2][2];
    for (auto& pair : parameters) {
      pair[0] = weight.clone().requires_grad_();
      pair[1] = bias.clone().requires_grad_();
    }
    expect_same(
        random_map(5, 3, 4),
        [&](const at::Tensor& x) {
          return transposed_conv(x, parameters[0][0], parameters[0][1], {});
        },
        [&](const at::Tensor& x) {
          return at::conv_transpose2d(x, parameters[1][0], parameters[1][1],
                                      {k, k});
        });
    for (const int i : {0, 1})
      EXPECT_LE(
          largest_difference(parameters[0][i].grad(), parameters[1][i].grad()),
          kTolerance);
  }
}

// Compares forward and the gradients of x and of the four parameters, in
// double.
TEST(SqueezeExcite, IsSqueezeAndExcitation) {
  constexpr int64_t kChannels = 6, kSqueezed = 3;
  at::manual_seed(4);
  const auto random = [](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).mul(2);
  };
  SqueezeExciteParameters ours = {
      random({kSqueezed, kChannels, 1, 1}), random({kSqueezed}),
      random({kChannels, kSqueezed, 1, 1}), random({kChannels})};
  SqueezeExciteParameters theirs;
  const auto copy = [](at::Tensor& from, at::Tensor& to) {
    to = from.clone().requires_grad_();
    from.requires_grad_();
  };
  copy(ours.weight1, theirs.weight1);
  copy(ours.bias1, theirs.bias1);
  copy(ours.weight2, theirs.weight2);
  copy(ours.bias2, theirs.bias2);
  expect_same(
      random_map(kChannels, 5, 4),
      [&](const at::Tensor& x) {
        return squeeze_excite(x, ours, StepContext());
      },
      [&](const at::Tensor& x) {
        const at::Tensor hidden = at::relu(at::conv2d(
            at::adaptive_avg_pool2d(x, {1, 1}), theirs.weight1, theirs.bias1));
        return x * at::conv2d(hidden, theirs.weight2, theirs.bias2)
                       .div(6)
                       .add(0.5)
                       .clamp(0, 1);
      });
  const auto grads = [](const SqueezeExciteParameters& all) {
    return std::vector<at::Tensor>{all.weight1.grad(), all.bias1.grad(),
                                   all.weight2.grad(), all.bias2.grad()};
  };
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_GT(grads(theirs)[i].abs().max().item<double>(), 0);
    EXPECT_LE(largest_difference(grads(ours)[i], grads(theirs)[i]), kTolerance);
  }
}

// The maps may be slices of wider maps, or have 16 bits.
TEST(SqueezeExcite, SumsOverCells) {
  at::manual_seed(5);
  const at::Tensor wide = at::randn({2, 7, 3, 5}, at::kDouble)
                              .contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor slice = wide.narrow(1, 2, 4);
  const at::Tensor other = at::randn({2, 4, 3, 5}, at::kDouble);
  EXPECT_LE(largest_difference(kernels::cell_sums(slice, other),
                               slice.mul(other).sum({2, 3})),
            kTolerance);
  const at::Tensor narrow = slice.to(at::kBFloat16);
  EXPECT_LE(largest_difference(kernels::cell_sums(narrow),
                               narrow.to(at::kDouble).sum({2, 3})),
            kTolerance);
  EXPECT_EQ(kernels::cell_sums(wide.narrow(0, 0, 0)).sizes(),
            at::IntArrayRef({0, 7}));
}

// The weights have YOLOv5's names, in YOLOv5's order.
TEST(ProgramLayer, StateOfAC3Ghost) {
  ModelState state(at::kFloat, 0);
  const auto layer = module_layer("C3Ghost", 16, {16.0})(state);
  std::vector<std::string> weights;
  for (const NamedTensor& entry : state.tensors())
    if (entry.role == TensorRole::kConvolutionWeight)
      weights.push_back(entry.name);
  EXPECT_EQ(weights,
            (std::vector<std::string>{
                "model.0.cv1.conv.weight", "model.0.cv2.conv.weight",
                "model.0.cv3.conv.weight", "model.0.m.0.conv.0.cv1.conv.weight",
                "model.0.m.0.conv.0.cv2.conv.weight",
                "model.0.m.0.conv.2.cv1.conv.weight",
                "model.0.m.0.conv.2.cv2.conv.weight"}));
  EXPECT_EQ(state.batch_norms().size(), 7U);
}

// A model of one channel accepts images of colours and gray images.
TEST(ProgramLayer, GrayIsMadeOfColours) {
  const layers::ModelTable table = layers::load_model_table(
      HEADROOM_SOURCE_DIR "/tests/support/models/gray.yaml");
  LayerGraph graph(table, 2, at::kDouble, 1);
  at::manual_seed(6);
  const at::Tensor colours = at::rand({1, 3, 16, 24}, at::kDouble);
  const at::Tensor gray = colours.narrow(1, 0, 1) * 0.299 +
                          colours.narrow(1, 1, 1) * 0.587 +
                          colours.narrow(1, 2, 1) * 0.114;
  const at::NoGradGuard no_grad;
  EXPECT_LE(largest_difference(graph.forward(colours, StepContext())[0],
                               graph.forward(gray, StepContext())[0]),
            kTolerance);
}

}  // namespace
}  // namespace headroom::model
