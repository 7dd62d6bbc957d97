// Layer: one line of the model table, ready to run.
//
// A layer is handed its inputs and a context and returns its outputs; it never
// looks at other layers, ranks or files. All but the detection head take maps
// [N, C, H, W] in channels-last memory and return one; N may be 0.
//
// Ownership: owns its tensors, which stay at their addresses.
// Threads: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

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

}  // namespace headroom::model
