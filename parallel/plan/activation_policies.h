// The names of policies, and of a plan's list of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace headroom::plan {

// "keep", "lean", "recompute", "offload", and back; nothing for another word.
std::string to_string(ActivationPolicy policy);
std::optional<ActivationPolicy> parse_activation_policy(
    const std::string& name);

// The text of Plan::activation_policies: "lean"; "keep, layer 7 lean, layers 0
// to 3, 5 recompute" where layers differ, the commonest first.
std::string activations_text(const std::vector<ActivationPolicy>& policies);

}  // namespace headroom::plan
