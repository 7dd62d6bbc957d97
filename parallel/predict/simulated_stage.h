// SimulatedStage: one micro-batch's forward and backward through a rank's
// layers, as worker/step/stage_step.h runs them.
//
// Layers run under their policies; a map is freed after its last reader. Under
// ZeRO 3 all parameters of a layer exist while it runs, forward and backward.
// Under ZeRO 2 and 3 its full gradients exist from their first to their last
// use.
//
// The buffers and the stage must outlive the MicroBatch.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "parallel/plan/plan.h"
#include "parallel/predict/graph.h"
#include "parallel/predict/layers.h"
#include "parallel/predict/loss.h"
#include "parallel/predict/op_context.h"
#include "parallel/predict/policies.h"

namespace headroom::predict {

// The part of a model that runs on a rank.
struct SimulatedStage {
  std::vector<layers::LayerCost> layers;  // all layers of the model
  int64_t begin = 0;                      // the rank's layers [begin, end)
  int64_t end = 0;
  // One policy per layer of the model; if empty, every layer has kKeep.
  std::vector<plan::ActivationPolicy> policies;
  int zero_stage = 0;
  int num_shards = 1;  // ranks that share a layer under ZeRO
  // ZeRO 3: the next layer's parameters are gathered while a layer runs.
  bool fetches_ahead = false;
  int64_t image_channels = 3;
  int64_t sample_bytes = 1;  // bytes per channel of a loaded pixel
  // Layers [0, num_frozen_layers) are frozen. If all layers are frozen, the
  // network is only evaluated.
  int64_t num_frozen_layers = 0;
  // The teacher's layers, which run first, unsharded; empty if there is no
  // teacher. REQUIRES: this rank has all layers.
  std::vector<layers::LayerCost> teacher;
  // Whether weights are cast to 16 bits for each use instead of copied once.
  bool casts_weights = false;

  bool learns(int64_t layer) const { return layer >= num_frozen_layers; }
  // Whether a layer of an earlier stage learns.
  bool has_learners_before() const { return begin > num_frozen_layers; }

  // Layers of earlier stages whose output this stage reads, ascending.
  std::vector<int> received() const;
  // Layers whose output later stages read, ascending.
  std::vector<int> sent() const;
  bool has_head() const { return end == static_cast<int64_t>(layers.size()); }
};

// Returns the sum of of_layer(layer) over the rank's layers.
template <typename Number>
int64_t sum_of_layers(const SimulatedStage& stage, const Number& of_layer) {
  int64_t total = 0;
  for (int64_t layer = stage.begin; layer < stage.end; ++layer)
    total += of_layer(stage.layers[static_cast<size_t>(layer)]);
  return total;
}

// Bytes of a layer's parameters in a flat buffer: whole, or a rank's slice.
int64_t flat_bytes(const layers::LayerCost& layer, int64_t element_bytes);
int64_t slice_bytes(const layers::LayerCost& layer, int64_t element_bytes,
                    int shards);

class MicroBatch {
 public:
  MicroBatch(LiveBuffers& buffers, const SimulatedStage& stage,
             const MicroBatchShape& shape, LossShape loss);

  // Takes and returns maps in the order of stage.received() and stage.sent().
  std::vector<Memory> forward(std::vector<Memory> received);
  // Takes gradients of the sent maps; returns gradients of the received maps.
  std::vector<Memory> backward(std::vector<Memory> sent);
  // Runs forward without a loss. Returns maps in the order of stage.sent(), or
  // the heads. REQUIRES: no layer learns.
  std::vector<Map> evaluate(std::vector<Memory> received);

  int64_t image_bytes() const {
    return shape_.map_bytes(stage_.image_channels, 1);
  }
  int64_t map_bytes(int layer) const;

  // Whether images and targets are in a CUDA graph's buffers, which live as
  // long as this object.
  bool has_graph_inputs = false;

  // Called before a layer's forward and before its backward, unless null.
  std::function<void(int64_t layer)> before_layer;
  // Called between the forward and the loss, unless null.
  std::function<void()> before_loss;

 private:
  // `images` live as long as the caller holds them.
  std::vector<Map> run(std::vector<Memory> received, Map& images);
  // Runs the teacher and returns its heads; empty without a teacher.
  std::vector<Map> ask_teacher(const Map& images);
  Map received_map(int layer, Memory memory, size_t index);
  std::vector<Map> run_layers(std::map<int, Map> maps, const Map& images);
  std::vector<Map> run_with_policy(int64_t layer,
                                   const std::vector<Map>& inputs);
  std::vector<Map> run_recomputed(const OpContext& context,
                                  const std::vector<Map>& inputs);
  void add_use_again(int64_t layer, Map& output);
  void after_parameters(int64_t layer);
  // Gathers the layer's parameters and, if fetches_ahead, the next layer's.
  void provide_values(int64_t layer, bool backwards);
  bool shards_values() const { return stage_.zero_stage >= 3; }
  int64_t layer_bytes(int64_t layer) const;
  const layers::LayerCost& layer_at(int64_t layer) const {
    return stage_.layers[static_cast<size_t>(layer)];
  }

  LiveBuffers& buffers_;
  const SimulatedStage& stage_;
  const MicroBatchShape shape_;
  const LossShape loss_;
  Graph graph_;
  SimulatedLean lean_;
  SimulatedOffload offload_;
  bool derives_ = false;  // whether any layer recomputes maps
  std::vector<Memory> sent_gradients_, received_gradients_;
  std::vector<Memory> graph_inputs_;
  std::vector<Map> teacher_heads_;  // held until the loss is computed
  // Gathered values and gradients by layer, under ZeRO.
  std::map<int64_t, Memory> values_, gradients_;
  // by layer: nodes with parameters that have not run yet
  std::map<int64_t, int64_t> num_missing_;
};

// The memory of a layer under an activation policy, for choosing policies layer
// by layer. A stage with policies p needs about
//
//   max over layers r of ( kept(0, p0) + … + kept(r-1, p(r-1)) + peak(r, pr) )
//
// and each further micro-batch in flight adds its kept bytes. Each policy is
// simulated with all layers under it: a map shared by two layers of different
// policies counts for the layer that made it. Confirm the result of a search
// over these numbers with estimate_rank_memory(), which is exact for any
// mixture.
struct LayerMemory {
  // Bytes held from the end of the layer's forward to its backward.
  int64_t kept_bytes = 0;
  // The peak in its forward or backward, including kept_bytes, without bytes
  // kept by earlier layers.
  int64_t peak_bytes = 0;
};

// One layer's costs, indexed by ActivationPolicy.
using MemoryByPolicy = std::array<LayerMemory, 4>;

// The costs of layers [stage.begin, stage.end) under the stage's policies.
std::vector<LayerMemory> layer_memory(const SimulatedStage& stage,
                                      const MicroBatchShape& shape,
                                      const LossShape& loss);

// The costs under each policy; does not read stage.policies. The head's costs
// include the loss, and the first layer's costs include the images.
std::vector<MemoryByPolicy> layer_memory_by_policy(SimulatedStage stage,
                                                   const MicroBatchShape& shape,
                                                   const LossShape& loss);

}  // namespace headroom::predict
