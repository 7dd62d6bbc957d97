// conv_block: convolution, batch norm and activation as one autograd function.
//
// Almost all of a detector consists of this block. As one function it needs
// fewer passes over memory than separate batch-norm and activation operators:
// one for the statistics, one for normalise + activate; backward recomputes the
// activation from the convolution's output in two passes. The block also
// implements memory policies and splits of the batch and of the image.
//
// Statistics are computed over groups of samples (StepContext::groups), in
// double. If a group spans ranks, the sums are added over ranks by
// StepContext::exchange: [sum, sum of squares] in forward, [sum dy, sum dy *
// xhat] in backward. Normalisation is that of YOLOv5: biased variance, eps
// 1e-3; running statistics use the unbiased variance.
//
// If each rank holds some rows of the image (StepContext::halo), a kernel that
// reads beyond these rows gets the rows around x from other ranks, and zeros
// beyond the image's edge. Backward returns the gradients of the rows around x.
// Statistics then cover all rows, so an exchange over these ranks is needed
// too.
//
// Shapes: x [N, C_in, H, W] channels-last, N may be 0; weight [C_out, C_in /
// groups, k, k]; returns [N, C_out, H', W'] channels-last.
// x may be bfloat16 or float16 with float32 parameters. Maps then have x's
// type; the arithmetic per element and the parameters' gradients are float32.
// Saved for backward: x, the halo rows received, the convolution's output, and
// per-group mean and inverse deviation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "configs/layers/layer_program.h"
#include "worker/model/step_context.h"

namespace headroom::model {

// Returns the weight with which `x` is convolved. Learning weights are float32
// or float64. 16-bit maps need a copy in their type: `ready`
// (NamedTensor::compute) if it is defined, else a temporary one. Not
// differentiable.
inline at::Tensor compute_weight(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& ready) {
  if (x.scalar_type() == weight.scalar_type()) return weight;
  if (ready.defined() && ready.scalar_type() == x.scalar_type()) return ready;
  return weight.detach().to(x.scalar_type());
}

inline constexpr double kBatchNormEpsilon = 1e-3;
inline constexpr double kBatchNormMomentum = 0.03;

struct ConvBlockArguments {
  at::Tensor x;
  at::Tensor weight;
  // The weight in x's type, if `weight` has another type (compute_weight()).
  at::Tensor compute_weight;
  at::Tensor norm_weight;   // gamma [C_out]
  at::Tensor norm_bias;     // beta [C_out]
  at::Tensor running_mean;  // used in evaluation only
  at::Tensor running_var;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;
  layers::ActivationFunction activation = {};
  // The offset of this layer's slice of batch_norm_sums.
  int64_t sums_offset = 0;
};

at::Tensor conv_block(const ConvBlockArguments& arguments,
                      const StepContext& context);

}  // namespace headroom::model
