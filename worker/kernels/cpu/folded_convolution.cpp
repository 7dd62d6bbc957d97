#include "worker/kernels/cpu/folded_convolution.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "parallel/base/device_scratch.h"

namespace headroom::kernels {
namespace {

constexpr int64_t kSide = kFoldedSide;
constexpr int64_t kPixels = kSide * kSide;

bool is_even(int64_t number) { return number % kSide == 0; }

// Views a weight's taps as [O, C, i, a, j, b].
at::Tensor parted_taps(const at::Tensor& weight) {
  return weight.view({weight.size(0), weight.size(1), weight.size(2) / kSide,
                      kSide, weight.size(3) / kSide, kSide});
}

// Views the folded weight as [O, i, j, a, b, C].
at::Tensor parted_channels(const at::Tensor& folded, int64_t channels) {
  const at::Tensor taps = folded.permute({0, 2, 3, 1});
  return taps.narrow(3, 0, kPixels * channels)
      .view({taps.size(0), taps.size(1), taps.size(2), kSide, kSide, channels});
}

}  // namespace

bool can_be_folded(const at::Tensor& x, const at::Tensor& weight,
                   const ConvolutionShape& shape) {
  return !x.is_cpu() && x.element_size() == 2 && shape.groups == 1 &&
         shape.stride == kSide && x.size(1) <= kMostFoldedChannels &&
         is_even(x.size(2)) && is_even(x.size(3)) && is_even(weight.size(2)) &&
         is_even(weight.size(3)) && is_even(shape.padding_height) &&
         is_even(shape.padding_width);
}

at::Tensor fold_pixels(const at::Tensor& x) {
  const int64_t samples = x.size(0), channels = x.size(1);
  const int64_t height = x.size(2) / kSide, width = x.size(3) / kSide;
  const at::Tensor folded = at::zeros(
      {samples, height, width, folded_channels(channels)}, x.options());
  // Two adjacent columns are adjacent in both layouts, so pairs are copied.
  const at::Tensor pairs =
      x.permute({0, 2, 3, 1})
          .contiguous()
          .view({samples, height, kSide, width, kSide * channels})
          .view(at::kInt);
  folded.view(at::kInt)
      .narrow(3, 0, kSide * channels)
      .view({samples, height, width, kSide, channels})
      .copy_(pairs.permute({0, 1, 3, 2, 4}));
  return folded.permute({0, 3, 1, 2});
}

at::Tensor fold_taps(const at::Tensor& weight) {
  const int64_t channels = weight.size(1);
  const at::Tensor folded =
      at::zeros({weight.size(0), weight.size(2) / kSide, weight.size(3) / kSide,
                 folded_channels(channels)},
                weight.options())
          .permute({0, 3, 1, 2});
  parted_channels(folded, channels)
      .copy_(parted_taps(weight).permute({0, 2, 4, 3, 5, 1}));
  return folded;
}

at::Tensor unfold_taps(const at::Tensor& folded, const at::Tensor& weight) {
  const at::Tensor dweight = at::empty_like(weight);
  parted_taps(dweight).copy_(
      parted_channels(folded, weight.size(1)).permute({0, 5, 1, 3, 2, 4}));
  return dweight;
}

ConvolutionShape folded(const ConvolutionShape& shape) {
  ConvolutionShape result = shape;
  result.stride = 1;
  result.padding_height /= kSide;
  result.padding_width /= kSide;
  return result;
}

}  // namespace headroom::kernels
