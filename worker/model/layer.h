// Layer: one layer of the model table, ready to run.
//
// A layer computes its outputs from its inputs and a context; it never accesses
// other layers, ranks or files. All layers but the detection head take maps [N,
// C, H, W] in channels-last memory and return one; N may be 0. The addresses of
// a layer's tensors do not change.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "configs/layers/layer_program.h"
#include "worker/model/step_context.h"

namespace headroom::model {

class Layer {
 public:
  Layer() = default;
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  virtual std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                          const StepContext& context) = 0;
  virtual layers::LayerInside inside() const {
    return layers::LayerInside::kSeveralMaps;
  }
};

// NamedTensor: one entry of the model's state, under YOLOv5's name. The model
// owns the tensor; `tensor` points to it, so that it can be replaced by a view
// of a flat buffer.
enum class TensorRole {
  kConvolutionWeight,  // subject to weight decay
  kBias,               // convolution and batch-norm biases
  kNormWeight,         // batch-norm scales
  kRunningStatistic,   // running_mean, running_var
  kConstant            // num_batches_tracked (int64), anchors
};

struct NamedTensor {
  std::string name;
  TensorRole role = TensorRole::kConstant;
  at::Tensor* tensor = nullptr;
  // The 16-bit copy of a convolution's weight, for 16-bit maps; nullptr if
  // there is no copy. Code that changes the weight must update the copy.
  at::Tensor* compute = nullptr;
  int64_t layer = 0;  // index in the model table

  bool is_parameter() const {
    return role == TensorRole::kConvolutionWeight ||
           role == TensorRole::kBias || role == TensorRole::kNormWeight;
  }
};

using NamedTensors = std::vector<NamedTensor>;

// LayerExecutor: a hook that runs layers instead of calling them directly.
//
// Memory policies and the sharding of parameters act before and after whole
// layers. Layers and graph do not depend on them: the graph runs every layer
// through StepContext::runner if that is set. Executors may be nested; the
// innermost one calls layer.forward(inputs, context).
class LayerExecutor {
 public:
  virtual ~LayerExecutor() = default;

  // Returns the outputs of layer `index` of the model table. Backward runs
  // later; to be notified of it, add hooks to the nodes of the outputs.
  virtual std::vector<at::Tensor> run(int64_t index, Layer& layer,
                                      const std::vector<at::Tensor>& inputs,
                                      const StepContext& context) = 0;
};

}  // namespace headroom::model
