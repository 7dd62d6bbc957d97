// Runs a convolution with few channels and stride 2, such as the first one of a
// detector, as a convolution of stride 1 over blocks of 2 x 2 pixels. The
// products are the same, but a device's library computes them several times as
// fast, because its matrix units need channels in multiples of eight.
//
//   rows 2h + a and columns 2w + b of x    ->  channel (a * 2 + b) * C + c
//   taps 2i + a and 2j + b of the weight   ->  the same channel of tap [i, j]
//
// Channels are padded with zeros to the next multiple of eight on both sides.
// This is the usual space-to-depth transformation of first layers.
//
// Shapes: x [N, C, H, W] channels-last -> [N, P, H / 2, W / 2] channels-last;
// weight [O, C, k, k] -> [O, P, k / 2, k / 2], with P = folded_channels(C)
// (parallel/base/device_scratch.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/kernels/cpu/convolution.h"

namespace headroom::kernels {

// Whether this method applies: few channels, stride 2, even sizes and 16-bit
// maps on a device.
bool can_be_folded(const at::Tensor& x, const at::Tensor& weight,
                   const ConvolutionShape& shape);

at::Tensor fold_pixels(const at::Tensor& x);
at::Tensor fold_taps(const at::Tensor& weight);
// The gradient of `weight`, in its memory format, from the folded gradient.
at::Tensor unfold_taps(const at::Tensor& folded, const at::Tensor& weight);
ConvolutionShape folded(const ConvolutionShape& shape);

}  // namespace headroom::kernels
