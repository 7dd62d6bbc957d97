// StageForward: the network without gradients, over the ranks that share it.
//
// All stages and image parts of one model replica call it for the same batch;
// the heads come together, whole, on the replica's last rank in the pipeline
// that holds the first part of the image.
//
// Ownership: borrows everything.
// Threads: one. Collective over the replica's ranks. Errors:
// CommunicationError.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/collectives/mesh.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/skip_routes.h"
#include "parallel/plan/plan.h"
#include "worker/data/batch.h"
#include "worker/gather_row_runner.h"
#include "worker/model/layer_graph.h"
#include "worker/rank_context.h"

namespace headroom {

class StageForward {
 public:
  // `gathered`: the runner of `context` where weights are sharded, else null.
  StageForward(LayerGraph& model, StageRoutes routes, Mesh& mesh,
               RankContext& context, at::ScalarType scalar_type,
               GatherRowRunner* gathered);

  // Heads of whole images where holds_heads(), otherwise nothing. Where this
  // rank runs the network alone and its memory does not suffice, images go
  // through in halves of halves.
  std::vector<at::Tensor> run(const Batch& batch);
  // How often run() had to.
  int64_t num_halvings() const { return num_halvings_; }
  // In place of run() on a replica that has no batch left while others do:
  // sharded weights are gathered equally often on all ranks.
  void skip();

  const LayerGraph& model() const { return model_; }
  bool holds_heads() const {
    return mesh_.is_last_stage() && mesh_.here.spatial_rank == 0;
  }

 private:
  std::vector<at::Tensor> run_rows(const at::Tensor& images);
  // Heads of samples [begin, end); a rank without peers.
  std::vector<at::Tensor> run_alone(const Batch& batch, SampleRange samples);
  bool is_alone() const {
    return mesh_.pipeline->size() == 1 && mesh_.spatial->size() == 1 &&
           gathered_ == nullptr;
  }
  std::vector<at::Tensor> gather_rows(const Batch& batch,
                                      const std::vector<at::Tensor>& heads);

  LayerGraph& model_;
  const StageRoutes routes_;
  Mesh& mesh_;
  RankContext& context_;
  const at::ScalarType scalar_type_;
  GatherRowRunner* const gathered_;
  PipelineExecutor executor_;
  int64_t num_halvings_ = 0;
};

// The forward of a world in which every rank holds the whole model.
struct ReplicaForward {
  ReplicaForward(LayerGraph& model, Communicator& world,
                 at::ScalarType scalar_type);

  Plan plan;
  Mesh mesh;
  RankContext context;
  StageForward network;
};

}  // namespace headroom
