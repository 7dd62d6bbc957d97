// A policy for each layer, so that the layers fit the memory and take the least
// time that this allows.
//
// What layers keep adds up until the end of forward; backward takes it back,
// layer by layer, from the last. While layer i runs, memory holds what the
// layers before it keep and what it needs itself:
//
//   for each i:  kept(0) + … + kept(i - 1) + busy(i) <= bound
//
// Less kept never hurts the layers behind, so the best choices are found layer
// by layer from the front (dynamic programming): of all ways to choose for the
// layers so far only those stay than which none keeps less and is faster.
//
// The bytes of a layer are not quite its own (maps are shared, gradients of
// skips wait), so each mixture is judged by the whole memory model, and the
// bound moved until the model agrees; then each layer is tried with a faster
// policy. The same request gives the same mixture.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom::planner {

struct MixtureLayer {
  struct Choice {
    plan::ActivationPolicy policy = plan::ActivationPolicy::kKeep;
    double seconds = 0;      // modelled; any unit
    int64_t kept_bytes = 0;  // kept between its forward and backward
    // Bytes in its forward or backward, what it keeps included.
    int64_t busy_bytes = 0;
  };
  // There is at least one; of equally good ones the earlier is preferred.
  std::vector<Choice> choices;
};

using ActivationPolicies = std::vector<plan::ActivationPolicy>;

// The fastest choice for each layer within `bound`; of equally fast ones the
// one that keeps least. None if there is none. Exact up to 4,096 ways that
// remain at a layer; of more the fastest of each 4,096th of the bound.
std::optional<ActivationPolicies> fastest_within(
    const std::vector<MixtureLayer>& layers, int64_t bound);

struct MixtureRequest {
  std::vector<MixtureLayer> layers;
  int64_t limit_bytes = 0;
  // Bytes of the whole model at its peak.
  std::function<int64_t(const ActivationPolicies&)> peak_bytes;
};

struct Mixture {
  ActivationPolicies policies;
  double seconds = 0;  // the time of its choices
  int64_t peak_bytes = 0;

  bool operator==(const Mixture&) const = default;
};

// None if no mixture that was tried fits. Never slower than a policy that all
// layers have a choice of and that fits.
std::optional<Mixture> choose_mixture(const MixtureRequest& request);

// Gives a plan that recomputes every layer the fastest mixture of keep, lean
// and recompute that fits as well, each pipeline stage for itself. Sets the
// plan's policies and predicted bytes, which stay within config.memory_limit.
// Returns the modelled time of all layers.
// REQUIRES: a plan that recomputes and fits.
double mix_activations(const configs::RunConfig& config,
                       const std::vector<layers::LayerCost>& layers,
                       plan::Plan& plan);

}  // namespace headroom::planner
