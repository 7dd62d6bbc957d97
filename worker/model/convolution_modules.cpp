#include "worker/model/convolution_modules.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "parallel/base/check.h"
#include "parallel/base/layer_exchange.h"
#include "worker/kernels/cpu/cell_sums.h"
#include "worker/kernels/cpu/convolution.h"
#include "worker/model/conv_block.h"
#include "worker/model/derived_maps.h"
#include "worker/model/detect.h"
#include "worker/model/model_state.h"
#include "worker/model/replay_log.h"
#include "worker/model/saved_pointer.h"

namespace headroom::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Weight as [k * k * C_out, C_in, 1, 1], output channels ordered by kernel row,
// kernel column, channel.
at::Tensor as_one_by_one(const at::Tensor& weight) {
  return weight.permute({2, 3, 1, 0}).reshape({-1, weight.size(0), 1, 1});
}

// Rearranges cells [N, k * k * C, H, W] into a map [N, C, k H, k W],
// channels-last; makes a copy.
at::Tensor spread(const at::Tensor& cells, int64_t k) {
  const int64_t n = cells.size(0), height = cells.size(2),
                width = cells.size(3), channels = cells.size(1) / (k * k);
  return cells.permute({0, 2, 3, 1})
      .reshape({n, height, width, k, k, channels})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({n, k * height, k * width, channels})
      .permute({0, 3, 1, 2});
}

// The inverse of spread.
at::Tensor gathered(const at::Tensor& map, int64_t k) {
  const int64_t n = map.size(0), height = map.size(2) / k,
                width = map.size(3) / k, channels = map.size(1);
  return map.permute({0, 2, 3, 1})
      .reshape({n, height, k, width, k, channels})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({n, height, width, k * k * channels})
      .permute({0, 3, 1, 2});
}

class TransposedConvFunction
    : public torch::autograd::Function<TransposedConvFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor* ready) {
    const at::Tensor input = x.contiguous(at::MemoryFormat::ChannelsLast);
    ctx->save_for_backward({input, weight});
    ctx->saved_data["ready"] = *ready;
    const at::Tensor cells = kernels::convolution(
        input, as_one_by_one(compute_weight(input, weight, *ready)), {});
    return spread(cells, weight.size(2))
        .add_(bias.to(cells.scalar_type()).view({1, -1, 1, 1}));
  }

  static variable_list backward(AutogradContext* ctx, variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const int64_t k = weight.size(2);
    at::Tensor dbias;
    if (ctx->needs_input_grad(2))
      dbias = grads[0].sum({0, 2, 3}, false, weight.scalar_type());
    kernels::ConvolutionGradients gradients = kernels::convolution_gradients(
        gathered(grads[0], k), x,
        as_one_by_one(
            compute_weight(x, weight, ctx->saved_data["ready"].toTensor())),
        {}, ctx->needs_input_grad(0), ctx->needs_input_grad(1));
    if (gradients.dweight.defined())
      gradients.dweight =
          gradients.dweight.reshape({k, k, weight.size(1), weight.size(0)})
              .permute({3, 2, 0, 1})
              .to(weight.scalar_type());
    return {gradients.dx, gradients.dweight, dbias, at::Tensor()};
  }
};

void add_bias(ModelState& state, const std::string& prefix, at::Tensor* bias,
              int64_t channels, int64_t fan_in) {
  state.add(prefix + "bias", TensorRole::kBias, bias,
            uniform_values({state.seed(), prefix + "bias"}, {channels},
                           kaiming_bound(fan_in), state.scalar_type()));
}

// --- Squeeze and excitation

// Slope of the hard sigmoid between 0 and 1.
constexpr double kSlope = 1.0 / 6;

at::Tensor as_matrix(const at::Tensor& weight) {
  return weight.reshape({weight.size(0), weight.size(1)});
}

// Values per sample and channel, shaped and typed to broadcast over `map`.
at::Tensor over_cells(const at::Tensor& values, const at::Tensor& map) {
  return values.to(map.scalar_type()).view({map.size(0), map.size(1), 1, 1});
}

// Adds values over the ranks that share images, by a copy in host memory.
void sum_over_images(HaloExchange* halo, at::Tensor& values) {
  if (halo == nullptr) return;
  at::Tensor here = values.cpu();
  halo->sum_over_images(here);
  values = here.to(values.device());
}

class SqueezeExciteFunction
    : public torch::autograd::Function<SqueezeExciteFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight1, const at::Tensor& bias1,
                            const at::Tensor& weight2, const at::Tensor& bias2,
                            const StepContext* context) {
    const at::Tensor input = x.contiguous(at::MemoryFormat::ChannelsLast);
    const auto sum = [&] {
      at::Tensor sums = kernels::cell_sums(input);
      sum_over_images(context->halo, sums);
      return sums;
    };
    const at::Tensor sums =
        context->replay_log != nullptr ? context->replay_log->once(sum) : sum();
    const int64_t rows = context->halo != nullptr
                             ? context->halo->window(x.size(2)).global_rows
                             : x.size(2);
    const int64_t cells = rows * x.size(3);
    const at::Tensor means =
        sums.div(static_cast<double>(cells)).to(weight1.scalar_type());
    const at::Tensor hidden =
        at::addmm(bias1, means, as_matrix(weight1).t()).relu_();
    at::Tensor gate = at::addmm(bias2, hidden, as_matrix(weight2).t());
    // ATen's hardsigmoid has only a sixth of float's precision.
    gate.mul_(kSlope).add_(0.5).clamp_(0, 1);
    ctx->save_for_backward({input, weight1, weight2, means, hidden, gate});
    ctx->saved_data["cells"] = cells;
    ctx->saved_data["halo"] = save_pointer(context->halo);
    return derived_map({input, over_cells(gate, input)}, *context,
                       [](const std::vector<at::Tensor>& maps) {
                         return maps[0].mul(maps[1]);
                       });
  }

  static variable_list backward(AutogradContext* ctx, variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor weight1 = as_matrix(saved[1]);
    const at::Tensor weight2 = as_matrix(saved[2]);
    const at::Tensor& means = saved[3];
    const at::Tensor& hidden = saved[4];
    const at::Tensor& gate = saved[5];
    const at::Tensor dz = kernels::cell_sums(grads[0], x)
                              .to(gate.scalar_type())
                              .mul_(gate.gt(0).logical_and_(gate.lt(1)))
                              .mul_(kSlope);
    const at::Tensor dhidden = at::mm(dz, weight2).mul_(hidden.gt(0));
    at::Tensor dx, dweight1, dbias1, dweight2, dbias2;
    if (ctx->needs_input_grad(1))
      dweight1 = at::mm(dhidden.t(), means).view(saved[1].sizes());
    if (ctx->needs_input_grad(2)) dbias1 = dhidden.sum(0);
    if (ctx->needs_input_grad(3))
      dweight2 = at::mm(dz.t(), hidden).view(saved[2].sizes());
    if (ctx->needs_input_grad(4)) dbias2 = dz.sum(0);
    if (ctx->needs_input_grad(0)) {
      at::Tensor dmeans = at::mm(dhidden, weight1).to(at::kDouble);
      sum_over_images(saved_pointer<HaloExchange>(ctx->saved_data["halo"]),
                      dmeans);
      dmeans.div_(static_cast<double>(ctx->saved_data["cells"].toInt()));
      dx = at::addcmul(over_cells(dmeans, x), grads[0], over_cells(gate, x));
    }
    return {dx, dweight1, dbias1, dweight2, dbias2, at::Tensor()};
  }
};

}  // namespace

at::Tensor squeeze_excite(const at::Tensor& x,
                          const SqueezeExciteParameters& parameters,
                          const StepContext& context) {
  return SqueezeExciteFunction::apply(x, parameters.weight1, parameters.bias1,
                                      parameters.weight2, parameters.bias2,
                                      &context);
}

at::Tensor transposed_conv(const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& bias, const at::Tensor& ready) {
  return TransposedConvFunction::apply(x, weight, bias, &ready);
}

namespace {

// Convolution, batch norm and activation as one operation (conv_block.h).
class Conv final : public ConvolutionModule {
 public:
  Conv(ModelState& state, const std::string& prefix,
       const layers::LayerProgram::Block& block)
      : block_(block) {
    const int64_t channels = block.channels;
    state.add_convolution_weight(
        prefix + "conv.weight", &weight_, &compute_weight_, channels,
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

  at::Tensor apply(const at::Tensor& x, const StepContext& context) override {
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

 private:
  const layers::LayerProgram::Block block_;
  at::Tensor weight_;
  at::Tensor compute_weight_;  // see NamedTensor::compute
  at::Tensor norm_weight_, norm_bias_;
  at::Tensor running_mean_, running_var_, num_batches_tracked_;
  int64_t sums_offset_ = 0;
};

class TransposedConv final : public ConvolutionModule {
 public:
  TransposedConv(ModelState& state, const std::string& prefix,
                 const layers::LayerProgram::Block& block) {
    state.add_convolution_weight(prefix + "weight", &weight_, &compute_weight_,
                                 block.in_channels, block.channels,
                                 block.kernel);
    add_bias(state, prefix, &bias_, block.channels,
             block.channels * block.kernel * block.kernel);
  }

  at::Tensor apply(const at::Tensor& x, const StepContext&) override {
    return transposed_conv(x, weight_, bias_, compute_weight_);
  }

 private:
  at::Tensor weight_, bias_;
  at::Tensor compute_weight_;
};

class OutputConv final : public ConvolutionModule {
 public:
  OutputConv(ModelState& state, const std::string& prefix,
             const layers::LayerProgram::Block& block) {
    state.add_convolution_weight(prefix + "weight", &weight_, &compute_weight_,
                                 block.channels, block.in_channels, 1);
    state.add(prefix + "bias", TensorRole::kBias, &bias_,
              at::full({block.channels}, block.first_bias));
  }

  at::Tensor apply(const at::Tensor& x, const StepContext&) override {
    return output_convolution(x, weight_, bias_, compute_weight_);
  }

 private:
  at::Tensor weight_, bias_;
  at::Tensor compute_weight_;
};

// In the state, the matrix products are 1x1 convolutions of means, "fc1." and
// "fc2.".
class SqueezeExcite final : public ConvolutionModule {
 public:
  SqueezeExcite(ModelState& state, const std::string& prefix,
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

  at::Tensor apply(const at::Tensor& x, const StepContext& context) override {
    return squeeze_excite(x, parameters_, context);
  }

 private:
  SqueezeExciteParameters parameters_;
};

}  // namespace

std::unique_ptr<ConvolutionModule> make_module(
    ModelState& state, const std::string& prefix,
    const layers::LayerProgram::Block& block) {
  using Kind = layers::LayerProgram::BlockKind;
  switch (block.kind) {
    case Kind::kConv:
      return std::make_unique<Conv>(state, prefix, block);
    case Kind::kTransposedConv:
      return std::make_unique<TransposedConv>(state, prefix, block);
    case Kind::kSqueezeExcite:
      return std::make_unique<SqueezeExcite>(state, prefix, block);
    case Kind::kOutputConv:
      return std::make_unique<OutputConv>(state, prefix, block);
  }
  HEADROOM_CHECK(false, prefix + " is a block of no kind");
}

}  // namespace headroom::model
