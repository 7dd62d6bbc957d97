// apply_plan: a plan applied to a plain detector, from outside and in a fixed
// order.
//
//   spatial      own_rows for the loader, halo exchange in every context
//                (parallel_context.h)
//   stage        layers_of_stage: the layers that the state keeps;
//                routes_of_stage: the maps it exchanges with other stages
//   activations  activation_rungs: what runs each layer
//   ZeRO         TrainingState::layer_executor, around the one before
//
// A runner is used by one thread; the rest is pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/pipeline/skip_routes.h"
#include "parallel/plan/plan.h"
#include "worker/model/layer.h"
#include "worker/model/layer_graph.h"

#include "parallel/collectives/communicator.h"

namespace headroom::step {

// The layers of a stage. `num_layers`: of the whole model.
model::LayerGraph::LayerRange layers_of_stage(const plan::Plan& plan, int stage,
                                              int64_t num_layers);

// What a stage receives and sends.
pipeline::StageRoutes routes_of_stage(const model::LayerGraph& model,
                                      const plan::Plan& plan, int stage);

// How the model's layers run under the plan's activation policies, and under
// leaner ones where memory turns out to be short (memory_ladder.h); the first
// three lists have an element a rung.
struct ActivationRungs {
  std::vector<std::unique_ptr<model::LayerExecutor>>
      runners;  // null: layers are called
  std::vector<std::string> names;
  // At each rung, the policy of each layer of the model.
  std::vector<std::vector<plan::ActivationPolicy>> policies;
  // Rungs left out because they change nothing, with the reason.
  std::vector<std::string> skipped;
};

// `host_memory_limit` in bytes bounds what is offloaded; 0 does not.
ActivationRungs activation_rungs(const plan::Plan& plan, int64_t num_layers,
                                 int64_t host_memory_limit);

// What ranks agree on before the first step; collective, both throw
// CommunicationError.

// Every rank gets rank 0's state of the model.
void replicate(collectives::Communicator& communicator,
               model::LayerGraph& model);

// Throws Error (exit 4) naming the first rank whose `digest` differs from rank
// 0's; `what` names the thing ("the training images and labels").
void require_same_on_all_ranks(collectives::Communicator& communicator,
                               uint64_t digest, const std::string& what);

}  // namespace headroom::step
