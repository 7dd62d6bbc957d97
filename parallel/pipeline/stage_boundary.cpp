#include "parallel/pipeline/stage_boundary.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace headroom::pipeline {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using GradientPointer = std::shared_ptr<MapGradient>;

struct GradientHolder final : torch::CustomClassHolder {
  explicit GradientHolder(GradientPointer to) : gradient(std::move(to)) {}
  GradientPointer gradient;
};

void keep(AutogradContext* ctx, const GradientPointer& gradient) {
  ctx->saved_data["gradient"] =
      c10::IValue::make_capsule(c10::make_intrusive<GradientHolder>(gradient));
}

MapGradient& kept(AutogradContext* ctx) {
  return *c10::static_intrusive_pointer_cast<GradientHolder>(
              ctx->saved_data["gradient"].toCapsule())
              ->gradient;
}

class ReceivingFunction final
    : public torch::autograd::Function<ReceivingFunction> {
 public:
  // `token`, without elements, wants a gradient: so autograd records this.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& token,
                            const at::Tensor& map,
                            const GradientPointer* gradient) {
    static_cast<void>(token);
    keep(ctx, *gradient);
    return map.detach();
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    kept(ctx).value = std::move(gradients[0]);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

class SendingFunction final
    : public torch::autograd::Function<SendingFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& map,
                            const GradientPointer* gradient) {
    keep(ctx, *gradient);
    return at::zeros({}, map.options());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list&) {
    return {std::move(kept(ctx).value), at::Tensor()};
  }
};

}  // namespace

at::Tensor received_map(const at::Tensor& map,
                        std::shared_ptr<MapGradient> gradient) {
  const at::Tensor token =
      at::empty({0}, map.options()).set_requires_grad(true);
  return ReceivingFunction::apply(token, map, &gradient);
}

at::Tensor sent_map(const at::Tensor& map,
                    std::shared_ptr<MapGradient> gradient) {
  if (!map.requires_grad()) return {};
  return SendingFunction::apply(map, &gradient);
}

}  // namespace headroom::pipeline
