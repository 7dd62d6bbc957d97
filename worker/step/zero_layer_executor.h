// ZeroLayerExecutor (ZeRO 3): gathers a layer's parameters for its forward.
// Gathers them again at the start of its backward, and keeps them until its
// last gradient is complete.
//
//   forward    use(layer); layer.forward or an inner runner; done_with(layer)
//   backward   the node added to the outputs calls use(layer); the layer's own
//              nodes compute the gradients; then the layer is released
//
// Ownership: borrows its arguments; autograd graphs refer to it, so it must
// outlive the step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/zero/layer_gather.h"
#include "parallel/zero/sharded_layers.h"
#include "worker/model/layer.h"

namespace headroom::step {

class ZeroLayerExecutor final : public model::LayerExecutor {
 public:
  // The parameters of layer `index` of the table are in part
  // part_of_layer[index] of `layers`; -1 means it has none.
  ZeroLayerExecutor(zero::ShardedLayers& layers,
                    std::vector<int64_t> part_of_layer)
      : layers_(layers), part_of_layer_(std::move(part_of_layer)) {}

  // `inner` runs the layers; null if they are called directly.
  void set_inner(model::LayerExecutor* inner) { inner_ = inner; }

  std::vector<at::Tensor> run(int64_t index, model::Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override;

 private:
  zero::ShardedLayers& layers_;
  const std::vector<int64_t> part_of_layer_;
  model::LayerExecutor* inner_ = nullptr;
};

// In evaluation under ZeRO, gathers the averaged weights of each layer while
// the layer runs.
//
// Every gather is collective: a rank that runs the network less often than
// others calls skip() instead. Borrows the layers.
class GatherLayerExecutor final : public model::LayerExecutor {
 public:
  GatherLayerExecutor(zero::LayerGather& layers,
                      std::vector<int64_t> part_of_layer)
      : layers_(layers), part_of_layer_(std::move(part_of_layer)) {}

  void begin() { next_ = 0; }

  std::vector<at::Tensor> run(int64_t index, model::Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override {
    const int64_t part = part_of_layer_.at(static_cast<size_t>(index));
    if (part >= 0) {
      // The layer counts as gathered only if gather() has not thrown.
      layers_.gather(part);
      next_ = index + 1;
    }
    std::vector<at::Tensor> outputs = layer.forward(inputs, context);
    if (part >= 0) layers_.release(part);
    return outputs;
  }

  // Takes part in the gathers of a forward that this rank does not run.
  void skip() {
    begin();
    while (next_layer() < static_cast<int64_t>(part_of_layer_.size())) {
      const int64_t part = part_of_layer_[static_cast<size_t>(next_layer())];
      next_ = next_layer() + 1;
      layers_.gather(part);
      layers_.release(part);
    }
  }

  // Releases layers whose values a failed forward has gathered and not
  // released.
  void release_all() {
    for (const int64_t part : part_of_layer_) {
      if (part >= 0 && layers_.is_whole(part)) layers_.release(part);
    }
  }

 private:
  int64_t next_layer() const {
    return std::find_if(part_of_layer_.begin() + next_, part_of_layer_.end(),
                        [](int64_t part) { return part >= 0; }) -
           part_of_layer_.begin();
  }

  zero::LayerGather& layers_;
  const std::vector<int64_t> part_of_layer_;
  int64_t next_ = 0;  // index of the next layer to gather
};

}  // namespace headroom::step
