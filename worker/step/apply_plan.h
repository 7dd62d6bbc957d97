// apply_plan: a plan applied to a plain detector, from outside and in a fixed
// order.
//
//   spatial      own_rows for the loader, halo exchange in every context
//                (parallel_context.h)
//   stage        layers_of_stage: the layers that the state keeps;
//   routes_of_stage activations  activation_rungs ZeRO
//   TrainingState::layer_executor, around the one before
//
// Threads: pure, but for the runner, which is used by one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/pipeline/skip_routes.h"
#include "parallel/plan/plan.h"
#include "worker/model/layer.h"
#include "worker/model/layer_graph.h"

namespace headroom::step {

// The layers of a stage. `num_layers`: of the whole model.
model::LayerGraph::LayerRange layers_of_stage(const plan::Plan& plan, int stage,
                                              int64_t num_layers);

// What a stage receives and sends.
pipeline::StageRoutes routes_of_stage(const model::LayerGraph& model,
                                      const plan::Plan& plan, int stage);

// How the model's layers run under the plan's activation policies, and under
// leaner ones where memory turns out to be short (memory_ladder.h).
struct ActivationRungs {
  std::vector<std::unique_ptr<model::LayerExecutor>>
      runners;                     // null: layers are called
  std::vector<std::string> names;  // of the same
  // Of the same: of each layer of the model.
  std::vector<std::vector<plan::ActivationPolicy>> policies;
  std::vector<std::string> skipped;  // that change nothing, with the reason
};

// `host_memory_limit` in bytes bounds what is offloaded; 0 does not.
ActivationRungs activation_rungs(const plan::Plan& plan, int64_t num_layers,
                                 int64_t host_memory_limit);

}  // namespace headroom::step
