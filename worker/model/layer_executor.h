// LayerExecutor: how a layer is run, where it is not simply called.
//
// A memory policy or a sharding of parameters acts around whole layers, without
// the layers or the graph knowing: StepContext hands in a runner, and the graph
// runs each layer through it. Runners may be stacked; the innermost calls
// layer.forward(inputs, context).
//
// Threads: the thread that runs the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/model/layer.h"

namespace headroom::model {

class LayerExecutor {
 public:
  virtual ~LayerExecutor() = default;

  // The outputs of layer number `layer` of the model table. Backward runs later
  // and may be told of through nodes added to the outputs.
  virtual std::vector<at::Tensor> run(int64_t index, Layer& layer,
                                      const std::vector<at::Tensor>& inputs,
                                      const StepContext& context) = 0;
};

}  // namespace headroom::model
