#include "worker/model/squeeze_excite.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "parallel/base/layer_exchange.h"
#include "worker/kernels/cpu/cell_sums.h"
#include "worker/model/derived_maps.h"
#include "worker/model/replay_log.h"

namespace headroom::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of a hard sigmoid, between its ends.
constexpr double kSlope = 1.0 / 6;

at::Tensor as_matrix(const at::Tensor& weight) {
  return weight.reshape({weight.size(0), weight.size(1)});
}

// Per sample and channel, of `map`'s type, to be spread over its cells.
at::Tensor over_cells(const at::Tensor& values, const at::Tensor& map) {
  return values.to(map.scalar_type()).view({map.size(0), map.size(1), 1, 1});
}

// Exchanges take memory of the host.
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
        context->tape != nullptr ? context->tape->once(sum) : sum();
    const int64_t rows = context->halo != nullptr
                             ? context->halo->window(x.size(2)).global_rows
                             : x.size(2);
    const int64_t cells = rows * x.size(3);
    const at::Tensor means =
        sums.div(static_cast<double>(cells)).to(weight1.scalar_type());
    const at::Tensor hidden =
        at::addmm(bias1, means, as_matrix(weight1).t()).relu_();
    at::Tensor gate = at::addmm(bias2, hidden, as_matrix(weight2).t());
    // ATen's own has a sixth of float's precision.
    gate.mul_(kSlope).add_(0.5).clamp_(0, 1);
    ctx->save_for_backward({input, weight1, weight2, means, hidden, gate});
    ctx->saved_data["cells"] = cells;
    ctx->saved_data["halo"] = reinterpret_cast<int64_t>(context->halo);
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
      sum_over_images(
          reinterpret_cast<HaloExchange*>(ctx->saved_data["halo"].toInt()),
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

}  // namespace headroom::model
