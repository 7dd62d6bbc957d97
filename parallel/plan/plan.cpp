#include "parallel/plan/plan.h"
#include "parallel/base/text.h"

#include <array>
#include <cstddef>

namespace headroom::plan {
namespace {

constexpr std::array kPolicies = {
    ActivationPolicy::kKeep, ActivationPolicy::kLean,
    ActivationPolicy::kRecompute, ActivationPolicy::kOffload};

// The layers with a policy as text: "layer 4", "layers 0 to 3, 7"; "" if no
// layer has the policy.
std::string layers_under(const std::vector<ActivationPolicy>& policies,
                         ActivationPolicy policy) {
  std::string text;
  int64_t count = 0;
  for (std::size_t begin = 0, end = 0; begin < policies.size(); begin = end) {
    while (end < policies.size() && policies[end] == policies[begin]) ++end;
    if (policies[begin] != policy) continue;
    text += cat(text.empty() ? " " : ", ", begin);
    if (end - begin > 1) text += cat(" to ", end - 1);
    count += static_cast<int64_t>(end - begin);
  }
  if (count == 0) return "";
  return (count == 1 ? "layer" : "layers") + text;
}

}  // namespace

std::string to_string(ActivationPolicy policy) {
  static constexpr std::array kNames = {"keep", "lean", "recompute", "offload"};
  return kNames.at(static_cast<std::size_t>(policy));
}

std::optional<ActivationPolicy> parse_activation_policy(
    const std::string& name) {
  for (const ActivationPolicy policy : kPolicies) {
    if (name == to_string(policy)) return policy;
  }
  return std::nullopt;
}

std::string activations_text(const std::vector<ActivationPolicy>& policies) {
  if (policies.empty()) return to_string(ActivationPolicy::kKeep);
  const ActivationPolicy most = *std::ranges::max_element(
      kPolicies, {}, [&policies](ActivationPolicy policy) {
        return std::ranges::count(policies, policy);
      });
  std::string text = to_string(most);
  for (const ActivationPolicy policy : kPolicies) {
    if (policy == most) continue;
    const std::string layers = layers_under(policies, policy);
    if (!layers.empty()) text += ", " + layers + " " + to_string(policy);
  }
  return text;
}

std::optional<std::string> capture_error(const Plan& plan,
                                         const BatchCut& cut) {
  const ParallelLayout& layout = plan.layout;
  if (layout.pipeline_parallel_size > 1) return "stages exchange maps";
  if (layout.spatial_parallel_size > 1) return "ranks exchange rows of maps";
  if (layout.data_parallel_size > 1 && plan.zero_stage >= 2) {
    return cat("ZeRO ", plan.zero_stage,
               " exchanges gradients in every backward");
  }
  if (std::ranges::find(plan.activation_policies, ActivationPolicy::kOffload) !=
      plan.activation_policies.end()) {
    return "offloaded maps go through the host";
  }
  // The checks below assume a smallest map of more than one cell per image.
  constexpr int64_t kCells = 2;
  if (groups_span_ranks(cut, cut.global_batch_size, kCells)) {
    return "groups of batch norm span ranks";
  }
  const auto groups =
      batch_norm_groups(cut.global_batch_size, cut.groups, kCells);
  if (groups.front().size() != groups.back().size()) {
    return "batch-norm groups have several sizes, " +
           group_sizes_text(cut.global_batch_size, cut.groups);
  }
  for (const BatchPart& part : parts_of(cut, cut.global_batch_size, kCells)) {
    if (std::ranges::adjacent_find(
            part.micro_batches, std::ranges::not_equal_to(),
            &SampleRange::size) != part.micro_batches.end()) {
      return "a step has micro-batches of several sizes";
    }
  }
  return std::nullopt;
}

}  // namespace headroom::plan
