// A convolution of few channels with a stride of 2, such as a detector's first,
// as one of stride 1 over pixels of 2 x 2: the same products, which a device's
// library computes several times as fast, because its matrix units want
// channels in eights.
//
//   rows 2h + a and columns 2w + b of x    ->  channel (a * 2 + b) * C + c
//   taps 2i + a and 2j + b of the weight   ->  the same channel of tap [i, j]
//
// Channels up to the next eight are zeros on both sides. (Space to depth, as
// first layers are given to matrix units elsewhere, too.)
//
// Shapes: x [N, C, H, W] channels-last -> [N, P, H / 2, W / 2] channels-last;
// weight [O, C, k, k] -> [O, P, k / 2, k / 2], with P = folded_channels(C)
// (parallel/base/device_scratch.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/kernels/cpu/convolution.h"

namespace headroom::kernels {

// Whether it is of that kind, and its maps are of 16 bits and on a device.
bool can_be_folded(const at::Tensor& x, const at::Tensor& weight,
                   const ConvolutionShape& shape);

at::Tensor fold_pixels(const at::Tensor& x);
at::Tensor fold_taps(const at::Tensor& weight);
// The gradient of `weight`, in its memory format, from that of its fold_taps().
at::Tensor unfold_taps(const at::Tensor& folded, const at::Tensor& weight);
ConvolutionShape folded(const ConvolutionShape& shape);

}  // namespace headroom::kernels
