// A convolution of stride 2 is computed as a convolution of stride 1 over
// pixels of 2 x 2. The products are the same, so that results of whole numbers
// are equal bit for bit.
#include "worker/kernels/cpu/folded_convolution.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

namespace headroom::kernels {
namespace {

const auto kChannelsLast = at::MemoryFormat::ChannelsLast;

// Whole numbers so small that every sum of products is exact in float32.
at::Tensor whole_numbers(at::IntArrayRef sizes) {
  return at::randint(-4, 5, sizes, at::kBFloat16).contiguous(kChannelsLast);
}

at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight,
                     const ConvolutionShape& shape) {
  return at::convolution(
      x.to(at::kFloat), weight.to(at::kFloat), {}, {shape.stride, shape.stride},
      {shape.padding_height, shape.padding_width}, {1, 1}, false, {0, 0}, 1);
}

at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x,
                           const at::Tensor& weight,
                           const ConvolutionShape& shape) {
  return std::get<1>(at::convolution_backward(
                         dy, x.to(at::kFloat), weight.to(at::kFloat),
                         at::OptionalIntArrayRef(),
                         {shape.stride, shape.stride},
                         {shape.padding_height, shape.padding_width}, {1, 1},
                         false, {0, 0}, 1, {false, true, false}))
      .to(at::kBFloat16);
}

struct Case {
  int64_t channels;
  int64_t kernel;
  ConvolutionShape shape;
};

TEST(FoldedConvolution, HasTheSameOutputAndWeightGradient) {
  at::manual_seed(3);
  // The second case is a part of an image together with the rows around it.
  for (const Case& one : {Case{3, 6, {2, 2, 2, 1}}, Case{3, 6, {2, 0, 2, 1}},
                          Case{1, 2, {2, 0, 0, 1}}, Case{4, 4, {2, 2, 2, 1}}}) {
    for (const auto format : {at::MemoryFormat::Contiguous, kChannelsLast}) {
      const at::Tensor x = whole_numbers({2, one.channels, 12, 16});
      const at::Tensor weight =
          whole_numbers({5, one.channels, one.kernel, one.kernel})
              .contiguous(format);
      const at::Tensor folded_x = fold_pixels(x);
      const at::Tensor folded_weight = fold_taps(weight);
      EXPECT_EQ(folded_x.size(1) % 8, 0);
      EXPECT_EQ(folded_x.size(1), folded_weight.size(1));
      EXPECT_TRUE(folded_x.is_contiguous(kChannelsLast));
      EXPECT_TRUE(folded_weight.is_contiguous(kChannelsLast));

      const at::Tensor y = convolved(x, weight, one.shape);
      EXPECT_TRUE(
          at::equal(convolved(folded_x, folded_weight, folded(one.shape)), y));
      const at::Tensor dy = whole_numbers(y.sizes()).to(at::kFloat);
      const at::Tensor dweight = unfold_taps(
          weight_gradient(dy, folded_x, folded_weight, folded(one.shape)),
          weight);
      EXPECT_TRUE(
          at::equal(dweight, weight_gradient(dy, x, weight, one.shape)));
      EXPECT_EQ(dweight.strides(), weight.strides());
    }
  }
}

TEST(FoldedConvolution, LeavesWeightsAsTheyWere) {
  const at::Tensor weight = whole_numbers({7, 3, 6, 6});
  EXPECT_TRUE(at::equal(unfold_taps(fold_taps(weight), weight), weight));
}

}  // namespace
}  // namespace headroom::kernels
