// ShardedLayers: ZeRO 2 and 3 over the layers of a model (Rajbhandari et al.,
// "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
// 2020).
//
//   begin_step()
//   begin_forward()    use(layer) … done_with(layer) …        ZeRO 3
//   begin_backward()   use(layer), then gradients; after the last gradient of a
//                      layer they are scattered, and its values released
//   abandon()          drops a step that failed on this or another rank
//
// If the communicator gathers in the background, the next layer of the pass is
// gathered while the current one runs; this takes the memory of one more whole
// layer.
//
// The passes of a step may have any order that is the same on all ranks. Within
// a pass, the collectives are a fixed list (collective_list.h).
//
// Owns the shards, keeps the layers, and borrows the communicators. Used by the
// thread that runs the step. Errors: CommunicationError; c10::OutOfMemoryError,
// after which only abandon() may be called.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/zero/collective_list.h"
#include "parallel/zero/layer_gather.h"
#include "parallel/zero/shard_map.h"

namespace headroom::zero {

// GradientScatter: sums each layer's gradient over all ranks and leaves each
// rank with its slice (ZeRO 2 and 3).
//
// A layer's gradient buffer exists from the layer's first gradient in a
// backward to its last; then it is reduced into the shard and released. The
// shard accumulates the micro-batches of a step.
//
// Owns the shard, keeps the layers' buffers and parameters, and borrows the
// communicators. Errors, thrown from backward: CommunicationError;
// c10::OutOfMemoryError if a buffer does not fit.
class GradientScatter {
 public:
  struct Layer {
    at::Tensor gradients;  // flat, padded, with its own storage
    // parameters that learn; their .grad is a view of `gradients`
    std::vector<at::Tensor> parameters;
  };

  // `on_final(layer)` is called within backward after the layer's last
  // gradient; it must call reduce(layer) when it is that layer's turn. The
  // layers are split over `ranks`; `copies` are the ranks that hold the same
  // slice for other parts of the images. REQUIRES: ranks.size() ==
  // map.num_ranks().
  GradientScatter(const ShardMap& map, std::vector<Layer> layers,
                  collectives::Communicator& ranks,
                  collectives::Communicator& copies,
                  std::function<void(int64_t)> on_final);
  ~GradientScatter();
  GradientScatter(const GradientScatter&) = delete;
  GradientScatter& operator=(const GradientScatter&) = delete;

  // A flat tensor of map.shard_size() elements; the caller zeroes it at the
  // start of a step.
  at::Tensor& shard();

  // Call it before the backward of each micro-batch.
  void begin_backward();
  // Collective: sums the layer's buffer over all ranks, adds this rank's slice
  // to the shard, and releases the buffer.
  void reduce(int64_t layer);
  // Frees the buffers that a failed backward left.
  void release_all();

 private:
  struct State;
  class FirstUse;
  class Accumulated;
  std::shared_ptr<State> state_;
};

class ShardedLayers {
 public:
  struct Layer {
    // flat, padded, with its own storage; undefined in ZeRO 2
    at::Tensor values;
    GradientScatter::Layer gradients;
  };

  // Either all layers have values, or no layer has. REQUIRES: as
  // GradientScatter and LayerGather.
  ShardedLayers(const ShardMap& map, std::vector<Layer> layers,
                collectives::Communicator& ranks,
                collectives::Communicator& copies);

  bool shards_values() const { return values_ != nullptr; }
  // REQUIRES: shards_values().
  at::Tensor& value_shard() { return values_->shard(); }
  at::Tensor& gradient_shard() { return gradients_->shard(); }

  void begin_step();
  void begin_forward();
  void begin_backward();
  // Call it before a pass first uses the layer's values; may be repeated.
  void use(int64_t layer);
  // Call it in forward after the layer has run.
  void done_with(int64_t layer);
  // After a failed step, releases all layers and drops the gather in flight.
  // REQUIRES: the communicator has been disconnected, so that no operation
  // writes to the layers.
  void abandon();

 private:
  void on_final(int64_t layer);
  void fetch_next();
  // Waits until the gather in flight has finished.
  void finish_fetch();

  std::unique_ptr<LayerGather> values_;  // null in ZeRO 2
  std::unique_ptr<GradientScatter> gradients_;
  std::vector<LayerCollective> forward_;
  std::vector<LayerCollective> backward_;
  CollectiveCursor cursor_;
  const bool fetches_ahead_;
  // The gather of the cursor's next layer, while it is in flight.
  std::unique_ptr<collectives::Work> fetch_;
};

}  // namespace headroom::zero
