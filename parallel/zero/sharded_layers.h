// ShardedLayers: ZeRO 2 and 3 over the layers of a model (Rajbhandari et al.,
// "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
// 2020).
//
//   begin_step()
//   begin_forward()    use(layer) … done_with(layer) …        ZeRO 3
//   begin_backward()   use(layer), then gradients; when the last one of a layer
//                      is there they are scattered, and its values released
//   complete_pass()    in place of what a failed rank did not do of a pass
//
// Where gathers run in the background (Communicator), the next layer of the
// pass is fetched while one runs: one layer more is whole then.
//
// The passes of a step may come in any order that is the same on all ranks;
// within one the collectives are a fixed list (collective_list.h).
//
// It owns the shards, keeps the layers, and borrows the ranks; the thread that
// runs the step uses it. Errors: CommunicationError; c10::OutOfMemoryError,
// after which complete_pass() still works.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/zero/collective_list.h"
#include "parallel/zero/gradient_scatter.h"
#include "parallel/zero/layer_gather.h"
#include "parallel/zero/shard_map.h"

namespace headroom::zero {

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
  // Before the first use of the layer's values in a pass; more calls do no
  // harm.
  void use(int64_t layer);
  // In forward, when the layer has run.
  void done_with(int64_t layer);
  // Carries out what is left of the pass, with zeros for gradients, and frees
  // what a failure left. Allocates one layer at a time.
  void complete_pass();
  // The same one by one, where other collectives come in between: the list of
  // the pass, how much of it is done, the next one; then complete_pass().
  const CollectiveCursor& cursor() const { return cursor_; }
  void complete_next();

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
