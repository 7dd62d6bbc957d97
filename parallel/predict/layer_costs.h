// layer_costs: what each layer of a stage takes under each activation policy,
// for who chooses policies layer by layer.
//
//   kept   bytes that the layer leaves from the end of the forward to its
//          backward
//   peak   bytes beside what the layers before it keep, at the fullest moment
//   of
//          the layer's forward or backward, its own kept bytes included
//
// So a stage with policies p needs about
//
//   max over layers r of ( kept(0, p0) + … + kept(r-1, p(r-1)) + peak(r, pr) )
//
// and of several micro-batches in flight each adds its kept bytes. Each policy
// is gone through with all layers under it: a map that two layers of different
// policies share counts for the layer that made it. What a search over these
// numbers finds is to be confirmed by estimate_rank_memory(), which is exact
// for any mixture.
//
// Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "parallel/predict/simulated_stage.h"

namespace headroom::predict {

struct LayerCost {
  int64_t kept_bytes = 0;
  int64_t peak_bytes = 0;
};

// Of one layer, by static_cast<size_t>(ActivationPolicy).
using LayerCosts = std::array<LayerCost, 4>;

// Of layers [stage.begin, stage.end), under the policies that the stage has.
std::vector<LayerCost> planned_layer_costs(const SimulatedStage& stage,
                                           const MicroBatchShape& extents,
                                           const LossShape& loss);

// The same under each; stage.policies is not read. The head's layer
// includes the loss, the first layer the images.
std::vector<LayerCosts> layer_costs(SimulatedStage stage,
                                    const MicroBatchShape& extents,
                                    const LossShape& loss);

}  // namespace headroom::predict
