#include "parallel/planner/choose_layout.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "parallel/plan/batch_split.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/plan_memory.h"

namespace headroom::planner {
namespace {

struct Candidate {
  PlanDecision decision;
  double seconds = 0;
  bool keeps_groups = false;  // those of a run without a limit
};

std::string times_text(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f x the time", factor);
  return text;
}

// Nothing can be faster, or simpler.
bool is_plain(const Candidate& candidate) {
  const plan::Plan& plan = *candidate.decision.plan;
  return plan.layout.data_parallel_size == plan.layout.world_size() &&
         plan.zero_stage == 0 && plan.activation_policies.empty() &&
         candidate.keeps_groups;
}

// What became of the others, in a few words.
std::string others_text(const std::vector<Candidate>& candidates,
                        const Candidate& chosen, size_t num_layouts) {
  constexpr size_t kMostNamed = 3;
  std::string text;
  size_t named = 0;
  for (const Candidate& other : candidates) {
    if (&other == &chosen || named == kMostNamed) continue;
    ++named;
    text += (text.empty() ? "; " : ", ") +
            plan::to_string(other.decision.plan->layout) + " would take " +
            times_text(other.seconds / chosen.seconds);
  }
  const size_t unnamed = candidates.size() - 1 - named;
  if (unnamed > 0) text += ", " + std::to_string(unnamed) + " more fit";
  const size_t unfit = num_layouts - candidates.size();
  if (unfit > 0) {
    text += (text.empty() ? "; " : ", ") + std::to_string(unfit) +
            (unfit == 1 ? " other layout does" : " other layouts do") +
            " not fit";
  }
  return text;
}

}  // namespace

std::optional<PlanDecision> choose_layout(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers, const FitLayout& fit) {
  const int64_t usual_group =
      config.batch_norm_group_size > 0
          ? config.batch_norm_group_size
          : plan::default_batch_norm_group_size(config.global_batch_size);
  const std::vector<plan::ParallelLayout> layouts =
      plan::layouts_of(world_size);
  std::vector<Candidate> candidates;
  for (const plan::ParallelLayout& layout : layouts) {
    configs::RunConfig trial = config;
    trial.layout = layout;
    Candidate candidate{fit(trial)};
    if (!candidate.decision.plan) continue;
    const plan::Plan& plan = *candidate.decision.plan;
    candidate.seconds = plan_time(config, plan, layers).total();
    candidate.keeps_groups =
        config.sync_batch_norm || plan.batch_norm_group_size == usual_group;
    if (is_plain(candidate)) return std::move(candidate.decision);
    candidates.push_back(std::move(candidate));
  }
  if (std::ranges::any_of(candidates, &Candidate::keeps_groups)) {
    std::erase_if(candidates,
                  [](const Candidate& one) { return !one.keeps_groups; });
  }
  if (candidates.empty()) return std::nullopt;
  const double least =
      std::ranges::min_element(candidates, {}, &Candidate::seconds)->seconds;
  // The simplest come first.
  const auto chosen =
      std::ranges::find_if(candidates, [least](const Candidate& one) {
        return one.seconds <= (1 + predict::kEqualWithin) * least;
      });
  PlanDecision decision = chosen->decision;
  decision.reason += others_text(candidates, *chosen, layouts.size());
  decision.plan->reason = decision.reason;
  return decision;
}

}  // namespace headroom::planner
