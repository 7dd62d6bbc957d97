#include "worker/step/zero_layer_executor.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

namespace headroom::step {
namespace {

using torch::autograd::variable_list;

// Gathers all parameters of a layer before the backward of the node that made
// its output.
class UseAgain final : public torch::autograd::FunctionPreHook {
 public:
  UseAgain(zero::ShardedLayers& layers, int64_t part)
      : layers_(layers), part_(part) {}
  variable_list operator()(const variable_list& gradients) override {
    layers_.use(part_);
    return gradients;
  }

 private:
  zero::ShardedLayers& layers_;
  const int64_t part_;
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
  for (const at::Tensor& output : outputs) {
    if (output.requires_grad()) {
      output.grad_fn()->add_pre_hook(std::make_unique<UseAgain>(layers_, part));
    }
  }
  return outputs;
}

}  // namespace headroom::step
