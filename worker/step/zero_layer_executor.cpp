#include "worker/step/zero_layer_executor.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

namespace headroom::step {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A node of the graph saves this object, to find the layer's parameters again.
struct ShardedPart final : torch::CustomClassHolder {
  ShardedPart(zero::ShardedLayers& of_layers, int64_t number)
      : layers(of_layers), part(number) {}
  zero::ShardedLayers& layers;
  const int64_t part;
};

// Returns its input. Its backward runs before the backward of the layer that
// made `output`, and gathers all parameters of that layer.
struct UseAgain : torch::autograd::Function<UseAgain> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& output,
                            const c10::intrusive_ptr<ShardedPart>& part) {
    context->saved_data["part"] = c10::IValue::make_capsule(part);
    return output;
  }
  // Takes the gradients by reference, so that no second owner stops the layer
  // from working in place.
  static variable_list backward(AutogradContext* context,
                                variable_list& gradients) {
    const auto part = c10::static_intrusive_pointer_cast<ShardedPart>(
        context->saved_data["part"].toCapsule());
    part->layers.use(part->part);
    return {std::move(gradients[0]), at::Tensor()};
  }
};

}  // namespace

std::vector<at::Tensor> ZeroLayerExecutor::run(
    int64_t index, model::Layer& layer, const std::vector<at::Tensor>& inputs,
    const model::StepContext& context) {
  const int64_t part = part_of_layer_.at(static_cast<size_t>(index));
  if (part >= 0) layers_.use(part);
  std::vector<at::Tensor> outputs =
      inner_ != nullptr ? inner_->run(index, layer, inputs, context)
                        : layer.forward(inputs, context);
  if (part < 0) return outputs;
  layers_.done_with(part);
  for (at::Tensor& output : outputs) {
    if (output.requires_grad()) {
      output = UseAgain::apply(output,
                               c10::make_intrusive<ShardedPart>(layers_, part));
    }
  }
  return outputs;
}

}  // namespace headroom::step
