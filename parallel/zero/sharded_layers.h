// ShardedLayers: ZeRO 2 and 3 over the layers of a model (Rajbhandari et al.,
// "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
// 2020).
//
//   begin_step()
//   begin_forward()    use(layer) … done_with(layer) …        ZeRO 3
//   begin_backward()   use(layer), then gradients; when the last one of a layer
//                      is there they are scattered, and its values released
//   abandon()          drops a step that failed on this or another rank
//
// Where gathers run in the background (Communicator), the next layer of the
// pass is fetched while one runs: one layer more is whole then.
//
// The passes of a step may come in any order that is the same on all ranks;
// within one the collectives are a fixed list (collective_list.h).
//
// It owns the shards, keeps the layers, and borrows the ranks; the thread that
// runs the step uses it. Errors: CommunicationError; c10::OutOfMemoryError,
// after which only abandon() may follow.
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

// Sums each layer's gradient over all ranks and leaves every
// rank with its slice (ZeRO 2 and 3).
//
// A layer's gradient buffer exists from the first gradient that backward
// produces for the layer to the last; then it is reduced into the shard and
// released. The shard adds up the micro-batches of a step.
//
// It owns the shard, keeps the layers' buffers and parameters, and borrows the
// ranks. Errors: CommunicationError; c10::OutOfMemoryError where a buffer does
// not fit. Both come out of backward.
class GradientScatter {
 public:
  struct Layer {
    at::Tensor gradients;                // flat, padded, of its own storage
    std::vector<at::Tensor> parameters;  // learning ones; .grad views gradients
  };

  // `on_final(layer)` is called within backward when the last of the layer's
  // gradients is there; it calls reduce(layer) once it is the layer's turn.
  // `ranks` share the layers; `copies` hold the same slice and other parts of
  // the images.
  // REQUIRES: ranks.size() == map.num_ranks().
  GradientScatter(const ShardMap& map, std::vector<Layer> layers,
                  collectives::Communicator& ranks,
                  collectives::Communicator& copies,
                  std::function<void(int64_t)> on_final);
  ~GradientScatter();
  GradientScatter(const GradientScatter&) = delete;
  GradientScatter& operator=(const GradientScatter&) = delete;

  // [map.shard_size()]; the caller zeroes it at the start of a step.
  at::Tensor& shard();

  // Call it before the backward of each micro-batch.
  void begin_backward();
  // Collective: the layer's buffer, summed over all ranks, is added to the
  // shard and released.
  void reduce(int64_t layer);
  // Frees what a failed backward left.
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
    at::Tensor values;  // flat, padded, of its own storage; undefined: ZeRO 2
    GradientScatter::Layer gradients;
  };

  // All layers have values, or none. REQUIRES: as GradientScatter, LayerGather.
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
  // Called before the first use of the layer's values in a pass; more calls do
  // no harm.
  void use(int64_t layer);
  // Forward calls it when the layer has run.
  void done_with(int64_t layer);
  // Frees what a failed step left whole, and its gather under way. REQUIRES: the
  // ranks have been disconnected since, so that nothing writes there any more.
  void abandon();

 private:
  void on_final(int64_t layer);
  void fetch_next();
  // Waits until the layer that is being fetched is there.
  void finish_fetch();

  std::unique_ptr<LayerGather> values_;  // ZeRO 3
  std::unique_ptr<GradientScatter> gradients_;
  std::vector<LayerCollective> forward_;
  std::vector<LayerCollective> backward_;
  CollectiveCursor cursor_;
  const bool fetches_ahead_;
  // The gather of the cursor's next layer, where it is under way.
  std::unique_ptr<collectives::Work> fetch_;
};

}  // namespace headroom::zero
