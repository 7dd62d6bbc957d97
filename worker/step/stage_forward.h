// StageForward: the network without gradients, over the ranks that share it.
//
// All stages and image parts of one model replica call it for the same batch.
// The whole heads arrive on one rank: of the last pipeline stage, the one with
// the first part of the image.
//
// If memory is short, a rank that has the whole network tries the batch once
// more, then in halves of halves. Ranks that share the network, or its weights,
// cannot do so alone: the failure is thrown, and the next generation begins
// with num_parts_after_failure().
//
// Ownership: borrows everything.
// Threads: one. Collective over the ranks that share the network or its
// weights. Errors: CommunicationError; c10::OutOfMemoryError; Error (exit 5)
// if one image does not fit.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "parallel/collectives/mesh.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/skip_routes.h"
#include "parallel/plan/plan.h"
#include "worker/data/loader/batch.h"
#include "worker/memory/memory_ladder.h"
#include "worker/model/layer_graph.h"
#include "worker/step/parallel_context.h"
#include "worker/step/zero_layer_executor.h"

namespace headroom::step {

// Runs one stage's layers, in training and evaluation. `received`: the maps of
// routes.received, in that order. Returns those of routes.sent, or the heads
// where the last layer is kept.
std::vector<at::Tensor> run_stage_layers(model::LayerGraph& model,
                                         const pipeline::StageRoutes& routes,
                                         std::vector<at::Tensor> received,
                                         const at::Tensor& images,
                                         const model::StepContext& context);

// Sizes of the map of `layer` for `samples` images. `pixels` [n, rows, W, 3]:
// the image rows that are here.
std::vector<int64_t> stage_map_sizes(const model::LayerGraph& model, int layer,
                                     int64_t samples, const at::Tensor& pixels);

class StageForward {
 public:
  // `gathered`: the runner of `context` where weights are sharded, else null.
  StageForward(model::LayerGraph& model, pipeline::StageRoutes routes,
               collectives::Mesh& mesh, ParallelContext& context,
               const at::TensorOptions& map_options,
               GatherLayerExecutor* gathered);

  // Returns the heads of whole images where holds_heads(), otherwise nothing.
  std::vector<at::Tensor> run(const loader::Batch& batch);
  // How often a batch had to be cut into more parts than before.
  int64_t num_halvings() const { return num_halvings_; }
  // `retry` reports every failure.
  void set_retry(memory::MemoryRetry retry) { retry_ = std::move(retry); }
  // Every batch goes through in at least so many parts, the same number on all
  // ranks that run the network together: 0 before the first failure that was
  // thrown, 1 after it (freed memory may suffice), then twice as many each
  // time.
  void set_num_parts(int64_t parts) { first_num_parts_ = parts; }
  // The argument of set_num_parts() after a failure that was thrown.
  int64_t num_parts_after_failure() const {
    if (!has_thrown_) return first_num_parts_;  // what failed is not this
    return first_num_parts_ == 0 ? 1 : 2 * first_num_parts_;
  }
  // Takes the place of run() on a replica that has no batch left while others
  // do: sharded weights are gathered equally often on all ranks.
  void skip();

  const model::LayerGraph& model() const { return model_; }
  bool holds_heads() const {
    return mesh_.is_last_stage() && mesh_.here.spatial_rank == 0;
  }

 private:
  struct Attempt {
    std::vector<at::Tensor> heads;
    std::string failure;  // this rank's; "" for none
  };
  // This rank failed at a batch of `samples`: decides on the next attempt.
  // Throws where it is not for this rank alone to make one, and where nothing
  // smaller is left.
  void prepare_retry(const std::string& failure, int64_t samples);
  Attempt attempt(const loader::Batch& batch);
  std::vector<at::Tensor> run_context(const loader::Batch& batch);
  std::vector<at::Tensor> run_layers(const at::Tensor& pixels);
  // Whether this rank shares neither network nor weights with others.
  bool is_alone() const {
    return mesh_.pipeline->size() == 1 && mesh_.spatial->size() == 1 &&
           gathered_ == nullptr;
  }
  std::vector<at::Tensor> gather_rows(const loader::Batch& batch,
                                      const std::vector<at::Tensor>& heads);

  model::LayerGraph& model_;
  const pipeline::StageRoutes routes_;
  collectives::Mesh& mesh_;
  ParallelContext& context_;
  const at::TensorOptions map_options_;
  GatherLayerExecutor* const gathered_;
  pipeline::PipelineExecutor executor_;
  memory::MemoryRetry retry_;
  int64_t num_halvings_ = 0;
  bool has_thrown_ = false;  // for want of memory, that more parts may save
  int64_t first_num_parts_ = 0;
  // How the present batch goes through.
  int64_t num_parts_ = 1;
  bool was_tried_again_ = false;
};

// The forward of a world in which every rank holds the whole model.
struct ReplicaForward {
  ReplicaForward(model::LayerGraph& model, collectives::Communicator& world,
                 const at::TensorOptions& map_options);

  plan::Plan plan;
  collectives::Mesh mesh;
  ParallelContext context;
  StageForward network;
};

}  // namespace headroom::step
