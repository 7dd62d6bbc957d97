#include "worker/step/zero_layer_executor.h"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace headroom::step {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The identity; its backward comes before that of the layer behind it.
struct UseAgain : torch::autograd::Function<UseAgain> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& output,
                            zero::ShardedLayers* layers, int64_t part) {
    context->saved_data["layers"] = reinterpret_cast<int64_t>(layers);
    context->saved_data["part"] = part;
    return output;
  }
  // By reference: the layer works in place on a gradient that is its alone.
  static variable_list backward(AutogradContext* context,
                                variable_list& gradients) {
    reinterpret_cast<zero::ShardedLayers*>(
        context->saved_data["layers"].toInt())
        ->use(context->saved_data["part"].toInt());
    return {std::move(gradients[0]), at::Tensor(), at::Tensor()};
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
    if (output.requires_grad())
      output = UseAgain::apply(output, &layers_, part);
  }
  return outputs;
}

}  // namespace headroom::step
