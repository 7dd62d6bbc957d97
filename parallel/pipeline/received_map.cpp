#include "parallel/pipeline/received_map.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace headroom {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Destination final : torch::CustomClassHolder {
  explicit Destination(std::shared_ptr<MapGradient> to)
      : gradient(std::move(to)) {}
  std::shared_ptr<MapGradient> gradient;
};

class ReceivedMap final : public torch::autograd::Function<ReceivedMap> {
 public:
  // `token`, an empty tensor that wants a gradient, makes autograd record this.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& token,
                            const at::Tensor& map,
                            const std::shared_ptr<MapGradient>* gradient) {
    static_cast<void>(token);
    ctx->saved_data["destination"] =
        c10::IValue::make_capsule(c10::make_intrusive<Destination>(*gradient));
    return map.detach();
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto destination = c10::static_intrusive_pointer_cast<Destination>(
        ctx->saved_data["destination"].toCapsule());
    destination->gradient->value = std::move(gradients[0]);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor received_map(const at::Tensor& map,
                        std::shared_ptr<MapGradient> gradient) {
  const at::Tensor token =
      at::empty({0}, map.options()).set_requires_grad(true);
  return ReceivedMap::apply(token, map, &gradient);
}

}  // namespace headroom
