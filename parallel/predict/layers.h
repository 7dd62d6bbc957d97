// Simulates the forward of one model layer or the head, operation by operation,
// as worker/model/layer_factory.h runs it.
#pragma once

#include <vector>

#include "configs/layers/layer_cost.h"
#include "parallel/predict/op_context.h"

namespace headroom::predict {

// Returns the layer's output; the head returns one map per level.
std::vector<Map> run_layer(const OpContext& context,
                           const layers::LayerCost& layer,
                           const std::vector<Map>& inputs);

}  // namespace headroom::predict
