#include "worker/model/convolution_modules.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "worker/model/conv_block.h"
#include "worker/model/initialisation.h"
#include "worker/model/transposed_conv.h"

namespace headroom::model {
namespace {

void add_bias(ModelState& state, const std::string& prefix, at::Tensor* bias,
              int64_t channels, int64_t fan_in) {
  state.add(prefix + "bias", TensorRole::kBias, bias,
            uniform_values({state.seed(), prefix + "bias"}, {channels},
                           kaiming_bound(fan_in), state.scalar_type()));
}

}  // namespace

Conv::Conv(ModelState& state, const std::string& prefix,
           const layers::LayerProgram::Block& block)
    : block_(block) {
  const int64_t channels = block.channels;
  state.add_convolution_weight(prefix + "conv.weight", &weight_,
                               &compute_weight_, channels,
                               block.in_channels / block.groups, block.kernel);
  state.add(prefix + "bn.weight", TensorRole::kNormWeight, &norm_weight_,
            at::ones({channels}));
  state.add(prefix + "bn.bias", TensorRole::kBias, &norm_bias_,
            at::zeros({channels}));
  state.add(prefix + "bn.running_mean", TensorRole::kRunningStatistic,
            &running_mean_, at::zeros({channels}));
  state.add(prefix + "bn.running_var", TensorRole::kRunningStatistic,
            &running_var_, at::full({channels}, 0.9));
  state.add(prefix + "bn.num_batches_tracked", TensorRole::kConstant,
            &num_batches_tracked_, at::ones({}, at::kLong));
  state.add_batch_norm(prefix + "bn", channels, &running_mean_, &running_var_,
                       &sums_offset_);
}

at::Tensor Conv::apply(const at::Tensor& x, const StepContext& context) {
  ConvBlockArguments arguments;
  arguments.x = x;
  arguments.weight = weight_;
  arguments.compute_weight = compute_weight_;
  arguments.norm_weight = norm_weight_;
  arguments.norm_bias = norm_bias_;
  arguments.running_mean = running_mean_;
  arguments.running_var = running_var_;
  arguments.stride = block_.stride;
  arguments.padding = block_.padding;
  arguments.groups = block_.groups;
  arguments.activation = block_.activation;
  arguments.sums_offset = sums_offset_;
  return conv_block(arguments, context);
}

TransposedConv::TransposedConv(ModelState& state, const std::string& prefix,
                               const layers::LayerProgram::Block& block) {
  state.add_convolution_weight(prefix + "weight", &weight_, &compute_weight_,
                               block.in_channels, block.channels, block.kernel);
  add_bias(state, prefix, &bias_, block.channels,
           block.channels * block.kernel * block.kernel);
}

at::Tensor TransposedConv::apply(const at::Tensor& x, const StepContext&) {
  return transposed_conv(x, weight_, bias_, compute_weight_);
}

SqueezeExcite::SqueezeExcite(ModelState& state, const std::string& prefix,
                             const layers::LayerProgram::Block& block) {
  const auto add = [&](const std::string& name, at::Tensor* weight,
                       at::Tensor* bias, int64_t out, int64_t in) {
    state.add_convolution_weight(prefix + name + "weight", weight,
                                 /*compute=*/nullptr, out, in, 1);
    add_bias(state, prefix + name, bias, out, in);
  };
  add("fc1.", &parameters_.weight1, &parameters_.bias1, block.squeezed,
      block.channels);
  add("fc2.", &parameters_.weight2, &parameters_.bias2, block.channels,
      block.squeezed);
}

at::Tensor SqueezeExcite::apply(const at::Tensor& x,
                                const StepContext& context) {
  return squeeze_excite(x, parameters_, context);
}

}  // namespace headroom::model
