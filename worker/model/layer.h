// Layer: one line of the model table, ready to run.
//
// A layer is handed its inputs and a context and returns its outputs; it never
// looks at other layers, ranks or files. All but the detection head take maps
// [N, C, H, W] in channels-last memory and return one; N may be 0. A layer's
// tensors stay at their addresses.
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

// NamedTensor: one entry of the model's state under YOLOv5's name.
//
// The model owns the tensor; `tensor` points into it, so that it can be
// replaced by a view of a flat buffer.
enum class TensorRole {
  kConvolutionWeight,  // decayed
  kBias,               // convolution and batch-norm biases
  kNormWeight,         // batch-norm scales
  kRunningStatistic,   // running_mean, running_var
  kConstant            // num_batches_tracked (int64), anchors
};

struct NamedTensor {
  std::string name;
  TensorRole role = TensorRole::kConstant;
  at::Tensor* tensor = nullptr;
  // The 16-bit copy of a convolution's weight, for maps of that type; null:
  // none is used. Whoever changes the weight renews the copy.
  at::Tensor* compute = nullptr;
  int64_t layer = 0;  // a layer of the model table

  bool is_parameter() const {
    return role == TensorRole::kConvolutionWeight ||
           role == TensorRole::kBias || role == TensorRole::kNormWeight;
  }
};

using NamedTensors = std::vector<NamedTensor>;

// LayerExecutor: how a layer is run, where it is not simply called.
//
// A memory policy or a sharding of parameters acts around whole layers, without
// the layers or the graph knowing: StepContext hands in a runner, and the graph
// runs each layer through it. Runners may be stacked; the innermost calls
// layer.forward(inputs, context).
class LayerExecutor {
 public:
  virtual ~LayerExecutor() = default;

  // The outputs of layer number `index` of the model table. Backward runs
  // later; nodes added to the outputs are told of it.
  virtual std::vector<at::Tensor> run(int64_t index, Layer& layer,
                                      const std::vector<at::Tensor>& inputs,
                                      const StepContext& context) = 0;
};

}  // namespace headroom::model
