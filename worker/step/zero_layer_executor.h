// ZeroLayerExecutor (ZeRO 3): makes a layer's parameters whole while it runs
// forward, and again from the start of its backward until its last gradient is
// complete.
//
//   use(layer)   layer.forward, or an inner runner   done_with(layer)
//   backward:  the node added to the outputs     use(layer)
//              the layer's own nodes               gradients; then released
//
// Ownership: borrows all it is given; autograd graphs refer to it, so it must
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
  // Layer `index` of the table is part part_of_layer[index] of `layers`, or -1
  // where it has no parameters.
  ZeroLayerExecutor(zero::ShardedLayers& layers,
                    std::vector<int64_t> part_of_layer)
      : layers_(layers), part_of_layer_(std::move(part_of_layer)) {}

  // `inner` runs the layers; null: they are called.
  void set_inner(model::LayerExecutor* inner) { inner_ = inner; }

  std::vector<at::Tensor> run(int64_t index, model::Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override;

 private:
  zero::ShardedLayers& layers_;
  const std::vector<int64_t> part_of_layer_;
  model::LayerExecutor* inner_ = nullptr;
};

// Makes a layer of the averaged weights whole while it runs, in evaluation
// under ZeRO.
//
// Every gather is collective: ranks run the network equally often, or take part
// with skip(). Borrows the layers.
class GatherLayerExecutor final : public model::LayerExecutor {
 public:
  // `part_of_layer` as in ZeroLayerExecutor.
  GatherLayerExecutor(zero::LayerGather& layers,
                      std::vector<int64_t> part_of_layer)
      : layers_(layers), part_of_layer_(std::move(part_of_layer)) {}

  // Call it before each forward.
  void begin() { next_ = 0; }

  std::vector<at::Tensor> run(int64_t index, model::Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override {
    const int64_t part = part_of_layer_.at(static_cast<size_t>(index));
    if (part >= 0) {
      // A layer that runs out of memory is still to be done.
      layers_.gather(part);
      next_ = index + 1;
    }
    std::vector<at::Tensor> outputs = layer.forward(inputs, context);
    if (part >= 0) layers_.release(part);
    return outputs;
  }

  // Takes part in a forward for which this rank has nothing to run.
  void skip() {
    begin();
    while (next_layer() < static_cast<int64_t>(part_of_layer_.size())) {
      const int64_t part = part_of_layer_[static_cast<size_t>(next_layer())];
      next_ = next_layer() + 1;
      layers_.gather(part);
      layers_.release(part);
    }
  }

  // Releases layers that a failed forward left whole.
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
  int64_t next_ = 0;  // layers before it are done
};

}  // namespace headroom::step
