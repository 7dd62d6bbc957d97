// Chooses an activation policy for each layer: the fastest choice that fits the
// memory.
//
// The bytes kept by the layers add up until the end of forward; backward frees
// them layer by layer, from the last. While layer i runs, memory holds the kept
// bytes of the layers before it and its own busy bytes:
//
//   for each i:  kept(0) + … + kept(i - 1) + busy(i) <= bound
//
// Keeping less never hurts later layers, so dynamic programming finds the best
// choices layer by layer from the front: a combination of choices is dropped if
// another one keeps no more bytes and is no slower.
//
// The bytes of single layers are approximate (layers share maps, and gradients
// of skip connections are kept longer), so the memory model of the whole stage
// checks each mixture. The search moves the bound to the largest one whose
// mixture fits; then it tries a faster policy for each layer. The same request
// always gives the same mixture.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/plan_memory.h"

namespace headroom::planner {

struct MixtureLayer {
  struct Choice {
    plan::ActivationPolicy policy = plan::ActivationPolicy::kKeep;
    double seconds = 0;      // predicted time, in any unit
    int64_t kept_bytes = 0;  // kept between its forward and backward
    // Peak bytes in its forward or backward, including kept_bytes.
    int64_t busy_bytes = 0;
  };
  // At least one choice. Among equally good choices the first is preferred.
  std::vector<Choice> choices;
};

using ActivationPolicies = std::vector<plan::ActivationPolicy>;

// The fastest choice for each layer within `bound`; among equally fast
// combinations the one that keeps the fewest bytes. No value if no combination
// fits. The result is exact while at most 4,096 combinations remain at a layer;
// if there are more, only the fastest in each 4,096th part of the bound is
// kept.
std::optional<ActivationPolicies> fastest_within(
    const std::vector<MixtureLayer>& layers, int64_t bound);

struct MixtureRequest {
  std::vector<MixtureLayer> layers;
  int64_t limit_bytes = 0;
  // Peak bytes of the whole model.
  std::function<int64_t(const ActivationPolicies&)> peak_bytes;
};

struct Mixture {
  ActivationPolicies policies;
  double seconds = 0;  // sum over all layers
  int64_t peak_bytes = 0;

  bool operator==(const Mixture&) const = default;
};

// Returns no value if no tried mixture fits. The result is never slower than a
// single policy that all layers allow and that fits.
std::optional<Mixture> choose_mixture(const MixtureRequest& request);

// Replaces the policies of a plan that recomputes every layer by the fastest
// mixture of keep, lean and recompute that also fits, separately for each
// pipeline stage. Sets the plan's policies and its predicted bytes, which stay
// within config.memory_limit. Returns the predicted time of all layers.
double mix_activations(const configs::RunConfig& config, PlanMemory& memory,
                       plan::Plan& plan);

}  // namespace headroom::planner
