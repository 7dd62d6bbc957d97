// The modules with parameters, as objects that own them: one class for each
// kind of block (configs/layers/layer_program.h).
//
// Shapes: maps [N, C, H, W] channels-last, N may be 0. Modules own their
// tensors, whose addresses do not change.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "configs/layers/layer_program.h"
#include "worker/model/model_state.h"
#include "worker/model/step_context.h"

namespace headroom::model {

// A transposed convolution whose kernel size equals its stride k. Each cell
// becomes k x k cells of its own, by a 1x1 convolution to k * k times the
// channels, so ranks that split an image by rows need no exchange.
//
// Shapes: x [N, C_in, H, W] channels-last, N may be 0; weight [C_in, C_out, k,
// k], bias [C_out]; returns [N, C_out, k H, k W] channels-last, of x's type.
// `ready`: the weight in x's type, or undefined (worker/model/conv_block.h).
// Saved for backward: x and the weight.
at::Tensor transposed_conv(const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& bias, const at::Tensor& ready);

struct SqueezeExciteParameters {
  at::Tensor weight1, bias1, weight2, bias2;
};

// Squeeze and excitation (Hu et al., 2018) in MobileNetV3's form, as one
// autograd function:
//
//   m = mean of x over an image's cells          [N, C]
//   h = relu(W1 m + b1)                          [N, S]
//   g = hardsigmoid(W2 h + b2)                   [N, C]
//   returns x times g, per sample and channel
//
// Means are summed in double. If each rank holds some rows of the images
// (StepContext::halo), the sums are added over the ranks, and so are the
// gradients of the means in backward. Each rank's parameter gradients are the
// contribution of its rows, as for a convolution.
//
// Shapes: x [N, C, H, W] channels-last, N may be 0; weights [S, C, 1, 1] and
// [C, S, 1, 1]; returns x's shape and type. For 16-bit maps, values per sample
// have the parameters' type. Saved for backward: x, the weights, m, h, g.
at::Tensor squeeze_excite(const at::Tensor& x,
                          const SqueezeExciteParameters& parameters,
                          const StepContext& context);

class ConvolutionModule {
 public:
  ConvolutionModule() = default;
  virtual ~ConvolutionModule() = default;
  ConvolutionModule(const ConvolutionModule&) = delete;
  ConvolutionModule& operator=(const ConvolutionModule&) = delete;

  virtual at::Tensor apply(const at::Tensor& x, const StepContext& context) = 0;
};

// Makes the module that runs `block`. `prefix` is the module's name in the
// state, "model.4.m.0.cv1.".
std::unique_ptr<ConvolutionModule> make_module(
    ModelState& state, const std::string& prefix,
    const layers::LayerProgram::Block& block);

}  // namespace headroom::model
