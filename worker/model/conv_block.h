// conv_block: convolution + grouped batch norm + activation as one autograd
// function.
//
// Almost all of a detector is this block. Doing it as one function removes the
// passes over memory that separate batch-norm and activation operators need
// (one pass for statistics, one for normalise + activate; backward recomputes
// the activation from the convolution's output in two), and it is where memory
// policies and splits of the batch and of the image attach.
//
// Statistics are over groups of samples (StepContext::groups), in double; a
// group that spans ranks adds its sums through StepContext::exchange, forward
// [sum, sum of squares] and backward [sum dy, sum dy * xhat]. Normalisation is
// YOLOv5's: biased variance, eps 1e-3; running statistics get the unbiased one.
//
// Where ranks hold some rows of the image each (StepContext::halo), a kernel
// that reaches beyond them gets the rows around x from other ranks, zeros at
// the image's edge, and their gradients go back; statistics then are of all
// rows, so an exchange over these ranks is needed too.
//
// Shapes: x [N, C_in, H, W] channels-last, N may be 0; weight [C_out, C_in /
// groups, k, k]; returns [N, C_out, H', W'] channels-last.
// x may be bfloat16 or float16 beside float32 parameters: maps then are of its
// type, the arithmetic per element and the parameters' gradients float32.
// Saved for backward: x, the halo rows received, the convolution's output, and
// per-group mean and inverse deviation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "configs/layers/layer_program.h"
#include "worker/model/step_context.h"

namespace headroom::model {

// The weight that `x` is convolved with. Weights that learn are float32 or
// float64. Maps of 16 bits are convolved with a copy of their own type: `ready`
// (NamedTensor::compute), or where that is undefined, one made for the moment.
// Not differentiable.
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
  // The weight in x's type where that is another (compute_weight above).
  at::Tensor compute_weight;
  at::Tensor norm_weight;   // gamma [C_out]
  at::Tensor norm_bias;     // beta [C_out]
  at::Tensor running_mean;  // read in evaluation
  at::Tensor running_var;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;
  layers::ActivationFunction activation = {};
  int64_t sums_offset = 0;  // this layer's slice of batch_norm_sums
};

at::Tensor conv_block(const ConvBlockArguments& arguments,
                      const StepContext& context);

}  // namespace headroom::model
