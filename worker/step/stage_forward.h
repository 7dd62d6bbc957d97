// StageForward: runs the network without gradients, on the ranks that share it.
//
// All stages and image parts of one model replica call it for the same batch.
// One rank receives the whole heads: the rank of the last pipeline stage that
// has the first part of the image.
//
// A rank that has the whole network and runs out of memory tries the batch once
// more, then in two parts, four, and so on. Ranks that share the network or its
// weights cannot retry alone: the failure is thrown, and the next generation
// begins with num_parts_after_failure().
//
// Ownership: borrows its constructor arguments.
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
// routes.received, in that order. Returns the maps of routes.sent, or the heads
// if the stage has the last layer.
std::vector<at::Tensor> run_stage_layers(model::LayerGraph& model,
                                         const pipeline::StageRoutes& routes,
                                         std::vector<at::Tensor> received,
                                         const at::Tensor& images,
                                         const model::StepContext& context);

// Sizes of the map of `layer` for `samples` images. `pixels` [n, rows, W, 3]:
// this rank's rows of the images.
std::vector<int64_t> stage_map_sizes(const model::LayerGraph& model, int layer,
                                     int64_t samples, const at::Tensor& pixels);

class StageForward {
 public:
  // `gathered` is the runner of `context` if weights are sharded, else null.
  StageForward(model::LayerGraph& model, pipeline::StageRoutes routes,
               collectives::Mesh& mesh, ParallelContext& context,
               const at::TensorOptions& map_options,
               GatherLayerExecutor* gathered);

  // Returns the heads of whole images if holds_heads(), otherwise an empty
  // list.
  std::vector<at::Tensor> run(const loader::Batch& batch);
  // How often a batch had to be cut into more parts than before.
  int64_t num_halvings() const { return num_halvings_; }
  // `retry` reports every failure and repeats work that does not communicate.
  void set_retry(memory::MemoryRetry retry) { retry_ = std::move(retry); }
  // Sets the least number of parts of every batch. It is equal on all ranks
  // that run the network together: 0 at first; 1 after the first failure that
  // was thrown, because freed memory may suffice; then twice as many each time.
  void set_num_parts(int64_t parts) { first_num_parts_ = parts; }
  // The argument for set_num_parts() in the generation after run() has thrown.
  int64_t num_parts_after_failure() const {
    if (!has_thrown_) return first_num_parts_;  // run() has not failed
    return first_num_parts_ == 0 ? 1 : 2 * first_num_parts_;
  }
  // Call it instead of run() on a replica that has fewer batches than others.
  // All ranks must gather the sharded weights equally often.
  void skip();

  const model::LayerGraph& model() const { return model_; }
  bool holds_heads() const {
    return mesh_.is_last_stage() && mesh_.here.spatial_rank == 0;
  }

 private:
  struct Attempt {
    std::vector<at::Tensor> heads;
    std::string failure;  // why this rank's attempt failed; "" if not
  };
  // Prepares the next attempt after a failure with a batch of `samples`. Throws
  // if this rank cannot retry alone or no smaller part is left.
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
  bool has_thrown_ = false;  // run() threw because memory ran out
  int64_t first_num_parts_ = 0;
  int64_t num_parts_ = 1;  // parts of the current batch
  bool was_tried_again_ = false;
};

// A StageForward, with all that it borrows, for ranks that each hold the whole
// model.
struct ReplicaForward {
  ReplicaForward(model::LayerGraph& model, collectives::Communicator& world,
                 const at::TensorOptions& map_options);

  plan::Plan plan;
  collectives::Mesh mesh;
  ParallelContext context;
  StageForward network;
};

}  // namespace headroom::step
