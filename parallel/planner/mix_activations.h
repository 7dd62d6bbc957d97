// mix_activations: where a plan recomputes every layer so that it fits the
// limit on memory, the fastest mixture of policies that fits as well.
//
// Each pipeline stage for itself (parallel/planner/activation_mixture.h), from
// what layers take (parallel/predict/layers.h), how long they take
// (configs/layers/layer_cost.h) and the whole memory model (plan_memory.h).
// Layers are kept, lean or recomputed; offloading is for whoever asks for it.
#pragma once

#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom::planner {

// Sets the plan's policies and predicted bytes; they stay within
// config.memory_limit. Returns the modelled time of all layers (LayerTime).
// REQUIRES: a plan that recomputes and fits.
double mix_activations(const configs::RunConfig& config,
                       const std::vector<layers::LayerCost>& layers,
                       plan::Plan& plan);

}  // namespace headroom::planner
