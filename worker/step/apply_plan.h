// apply_plan: applies a parallel plan to a detector, in a fixed order. The
// detector itself does not depend on the plan.
//
//   spatial      own_rows for the loader, halo exchange in every context
//                (parallel_context.h)
//   stage        layers_of_stage: the layers that the state keeps;
//                routes_of_stage: the maps it exchanges with other stages
//   activations  activation_rungs: the runners of the layers
//   ZeRO         TrainingState::layer_executor, which wraps such a runner
//
// Threads: a runner is used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/activations/offload_policy.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/collectives/communicator.h"
#include "parallel/pipeline/skip_routes.h"
#include "parallel/plan/plan.h"
#include "worker/model/derived_maps.h"
#include "worker/model/layer.h"
#include "worker/model/layer_graph.h"

namespace headroom::step {

// Runs layers so that each keeps for its backward only the tensors that its
// policy allows:
//
//   keep       all tensors that autograd saves
//   lean       convolution outputs; other maps are derived from them again
//   recompute  the layer's inputs, unless they can be derived. Consecutive
//              layers of one convolution each are recomputed as one piece: the
//              later ones keep nothing
//   offload    none in memory: the tensors that autograd saves go to a file
//
// All policies give the same bits. No communication is repeated and no
// statistic is counted twice: values received from other ranks are kept (lean)
// or replayed from a log (recompute).
//
// Ownership: autograd graphs refer to it, so it must outlive the step.
// Threads: the thread that runs the step. Errors: as OffloadFile.
class ActivationRunner final : public model::LayerExecutor {
 public:
  struct Options {
    // One per layer of the model.
    std::vector<plan::ActivationPolicy> policies;
    // Whether a layer may run again in the backward of the next layer. Under
    // ZeRO 3 it may not: its parameters are gathered only for its own backward.
    bool layers_join = true;
    // Most bytes to offload; 0 means as many as the disk takes.
    int64_t host_memory_limit = 0;
  };
  explicit ActivationRunner(Options options);
  ~ActivationRunner() override;

  std::vector<at::Tensor> run(int64_t index, model::Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override;

  const activations::OffloadPolicy& offload() const { return offload_; }

 private:
  std::vector<at::Tensor> run_lean(model::Layer& layer,
                                   const std::vector<at::Tensor>& inputs,
                                   const model::StepContext& context);
  std::vector<at::Tensor> run_recomputed(model::Layer& layer,
                                         const std::vector<at::Tensor>& inputs,
                                         const model::StepContext& context);

  const Options options_;
  bool maps_are_derived_ = false;  // whether any layer derives maps
  activations::DerivedPolicy lean_;
  activations::OffloadPolicy offload_;
};

model::LayerGraph::LayerRange layers_of_stage(const plan::Plan& plan, int stage,
                                              int64_t num_layers);

// The maps that a stage receives and sends.
pipeline::StageRoutes routes_of_stage(const model::LayerGraph& model,
                                      const plan::Plan& plan, int stage);

// Runners for the plan's activation policies and for the policies that save
// more memory, which are used if memory is short (memory_ladder.h). The first
// three lists have one element per rung.
struct ActivationRungs {
  std::vector<std::unique_ptr<model::LayerExecutor>>
      runners;  // null if the layers are called directly
  std::vector<std::string> names;
  // The policy of each layer of the model, at each rung.
  std::vector<std::vector<plan::ActivationPolicy>> policies;
  // Rungs that are not used because they change nothing, with the reason.
  std::vector<std::string> skipped;
};

// `host_memory_limit`: most bytes to offload; 0 means no limit. `may_offload`:
// whether layers may be offloaded although the plan does not.
ActivationRungs activation_rungs(const plan::Plan& plan, int64_t num_layers,
                                 int64_t host_memory_limit, bool may_offload);

// Collective work of the ranks before the first step. Both functions throw
// CommunicationError.

// Copies rank 0's model state to every rank.
void replicate(collectives::Communicator& communicator,
               model::LayerGraph& model);

// Throws Error (exit 4) naming the first rank whose `digest` differs from rank
// 0's; `what` names the compared data ("the training images and labels").
void require_same_on_all_ranks(collectives::Communicator& communicator,
                               uint64_t digest, const std::string& what);

}  // namespace headroom::step
