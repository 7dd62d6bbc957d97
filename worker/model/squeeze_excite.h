// squeeze_excite: squeeze and excitation (Hu et al., 2018), as MobileNetV3 has
// it, as one autograd function:
//
//   m = mean of x over an image's cells          [N, C]
//   h = relu(W1 m + b1)                          [N, S]
//   g = hardsigmoid(W2 h + b2)                   [N, C]
//   returns x times g of its sample and channel
//
// Means are summed in double. Where ranks hold some rows of the images each
// (StepContext::halo) the sums of all of them are added up, and in backward the
// gradients of the means; each rank's parameter gradients are then its rows'
// share, as those of a convolution.
//
// Shapes: x [N, C, H, W] channels-last, N may be 0; weights [S, C, 1, 1] and
// [C, S, 1, 1]; returns x's shape and type. Maps of 16 bits: what is per sample
// is of the parameters' type.
// Saved for backward: x, the weights, m, h, g.
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/step_context.h"

namespace headroom::model {

struct SqueezeExciteParameters {
  at::Tensor weight1, bias1, weight2, bias2;
};

at::Tensor squeeze_excite(const at::Tensor& x,
                          const SqueezeExciteParameters& parameters,
                          const StepContext& context);

}  // namespace headroom::model
