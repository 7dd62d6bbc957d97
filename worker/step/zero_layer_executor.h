// ZeroLayerExecutor: a layer's parameters are whole while it runs forward, and
// again from the first moment of its backward until its last gradient is there
// (ZeRO 3).
//
//   use(layer)   layer.forward, or an inner runner   done_with(layer)
//   backward:  the node added to the outputs     use(layer)
//              the layer's own nodes               gradients; then released
//
// Ownership: borrows all it is given; autograd graphs refer to it, so it must
// outlive the step.
// Threads: the thread that runs the step.
#pragma once

#include <vector>

#include "parallel/zero/sharded_layers.h"
#include "worker/model/layer.h"

namespace headroom::step {

class ZeroLayerExecutor final : public model::LayerExecutor {
 public:
  // Layer `index` of the table is part part_of_layer[index] of `layers`; -1: it
  // has no parameters.
  ZeroLayerExecutor(zero::ShardedLayers& layers,
                    std::vector<int64_t> part_of_layer)
      : layers_(layers), part_of_layer_(std::move(part_of_layer)) {}

  // Layers are run by `inner`; null: simply called.
  void set_inner(model::LayerExecutor* inner) { inner_ = inner; }

  std::vector<at::Tensor> run(int64_t index, model::Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override;

 private:
  zero::ShardedLayers& layers_;
  const std::vector<int64_t> part_of_layer_;
  model::LayerExecutor* inner_ = nullptr;
};

}  // namespace headroom::step
