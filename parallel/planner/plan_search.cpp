#include "parallel/planner/plan_search.h"

#include <algorithm>
#include <ranges>
#include <string>
#include <utility>

#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan_parts.h"
#include "parallel/planner/activation_mixture.h"
#include "parallel/planner/bisection.h"
#include "parallel/planner/plan_time.h"

namespace headroom::planner {
namespace {

// A smaller micro-batch is used only if its step takes at most this share of
// the step time with the larger micro-batch.
constexpr double kWorthIt = 0.98;

using configs::RunConfig;

bool fits_memory(const RunConfig& config,
                 const std::vector<layers::LayerCost>& layers) {
  return config.memory_limit > 0 && config.command == "train" &&
         !layers.empty();
}

int64_t bytes_of(const PlanDecision& decision) {
  return fullest_rank_bytes(*decision.plan);
}

// The batch-norm groups to try: those requested, else the usual ones, then
// smaller ones.
std::vector<plan::BatchNormRule> possible_rules(const RunConfig& config) {
  const int64_t batch = config.global_batch_size;
  plan::BatchNormRule rule = batch_norm_rule(config);
  std::vector<plan::BatchNormRule> all = {rule};
  if (!chooses_batch_norm_groups(config)) return all;
  while (--rule.size >= 1) {
    if (plan::largest_group(batch, rule) <
        plan::largest_group(batch, all.back())) {
      all.push_back(rule);
    }
  }
  return all;
}

// The candidates of one request with a memory limit and one layout.
class FitSearch {
 public:
  FitSearch(const RunConfig& config, int world_size, PlanMemory& memory)
      : config_(config),
        world_size_(world_size),
        memory_(memory),
        data_ranks_(config.layout ? config.layout->data_parallel_size
                                  : world_size),
        last_zero_(
            config.zero_stage == 0 && data_ranks_ > 1 ? 3 : config.zero_stage),
        rules_(possible_rules(config)) {
    if (config.activations == "auto") {
      policies_ = {"keep", "recompute", "offload"};
    } else {
      policies_ = {config.activations};
    }
  }

  // The preferred plan that fits.
  std::optional<PlanDecision> best() {
    for (const plan::BatchNormRule& rule : rules_) {
      RunConfig trial = config_;
      trial.batch_norm_rule = rule;
      if (auto found = best_with_groups(trial)) return found;
    }
    return std::nullopt;
  }

  // Any plan that fits, without bytes. Bytes grow with the micro-batch, but
  // only a share of several micro-batches needs accumulated gradients. So this
  // tries both the whole share as one micro-batch and the smallest
  // micro-batches.
  std::optional<PlanDecision> any() {
    // For most requests the preferred candidate fits.
    RunConfig first = config_;
    first.batch_norm_rule = rules_.front();
    first.activations = policies_.front();
    PlanDecision preferred = requested_plan(first, world_size_, memory_);
    if (preferred.plan &&
        memory_.fit(first, *preferred.plan) == MemoryFit::kFits) {
      return preferred;
    }
    for (int64_t zero = last_zero_; zero >= config_.zero_stage; --zero) {
      if (auto found = any_with_zero(zero)) return found;
    }
    return std::nullopt;
  }

  // Returns best(), or a refusal with the bytes of the smallest candidate.
  PlanDecision best_or_refusal() {
    wants_least_ = true;
    if (auto found = best()) return *found;
    if (!least_) return *invalid_;
    const plan::Plan& least = *least_->plan;
    PlanDecision refused;
    refused.exit_code = ExitCode::kNoPlan;
    refused.reason = cat("a process needs ", exact_bytes(bytes_of(*least_)),
                         " ", fullest_phase(least), " with activations ",
                         plan::activations_text(least.activation_policies),
                         " and micro-batches of ", least.micro_batch_size,
                         ", but the memory limit of a process is ",
                         exact_bytes(config_.memory_limit));
    return refused;
  }

 private:
  std::optional<PlanDecision> best_with_groups(const RunConfig& base) {
    std::optional<PlanDecision> best;
    double least = 0;
    for (int64_t zero = config_.zero_stage; zero <= last_zero_; ++zero) {
      RunConfig trial = base;
      trial.zero_stage = zero;
      auto found = best_activations(trial);
      if (!found) continue;
      const bool keeps = found->plan->activation_policies.empty();
      const double seconds = seconds_of(trial, *found->plan);
      if (!best || seconds < (1 - predict::kEqualWithin) * least) {
        least = seconds;
        best = std::move(found);
      }
      // If nothing is recomputed, a higher ZeRO stage can save no time: it only
      // adds communication.
      if (keeps) break;
    }
    return best;
  }

  std::optional<PlanDecision> best_activations(RunConfig trial) {
    for (const std::string& policy : policies_) {
      trial.activations = policy;
      auto found = largest_micro_batch(trial);
      if (!found) continue;
      const bool mixes = config_.activations == "auto" && policy == "recompute";
      return mixes ? fastest_mixture(trial, std::move(*found)) : found;
    }
    return std::nullopt;
  }

  std::optional<PlanDecision> largest_micro_batch(RunConfig trial) {
    if (auto found = attempt(trial)) return found;
    if (config_.micro_batch_size > 0 || !last_) return std::nullopt;
    // Bisection is possible because bytes grow with the micro-batch.
    const int64_t group = largest_group_of(*last_->plan);
    std::optional<PlanDecision> best;
    last_that_holds(0, divided_up(last_->plan->micro_batch_size, group),
                    [&](int64_t groups) {
                      trial.micro_batch_size = groups * group;
                      auto found = attempt(trial);
                      if (!found) return false;
                      best = std::move(found);
                      return true;
                    });
    return best;
  }

  // A smaller micro-batch leaves layers more memory. It is used if that saves
  // enough time (kWorthIt).
  PlanDecision fastest_mixture(RunConfig trial, PlanDecision largest) {
    PlanDecision best = std::move(largest);
    double least = mix(trial, best);
    const int64_t group = largest_group_of(*best.plan);
    int64_t groups = best.plan->micro_batch_size / group;
    while (config_.micro_batch_size == 0 && groups > 1) {
      groups /= 2;
      trial.micro_batch_size = groups * group;
      auto smaller = attempt(trial);
      if (!smaller) continue;
      const double time = mix(trial, *smaller);
      if (time >= kWorthIt * least) continue;
      least = time;
      best = std::move(*smaller);
    }
    return best;
  }

  double mix(const RunConfig& trial, PlanDecision& decision) const {
    const double time = mix_activations(trial, memory_, *decision.plan);
    decision.reason = reason_of(trial, *decision.plan);
    add_bytes(decision);
    return time;
  }

  std::optional<PlanDecision> attempt(const RunConfig& trial) {
    PlanDecision decision = requested_plan(trial, world_size_, memory_);
    last_.reset();
    if (!decision.plan) {
      if (!invalid_) invalid_ = std::move(decision);
      return std::nullopt;
    }
    last_ = decision;
    if (!wants_least_ &&
        memory_.fit(trial, *decision.plan) != MemoryFit::kFits) {
      return std::nullopt;
    }
    memory_.set_bytes(trial, *decision.plan);
    const int64_t bytes = bytes_of(decision);
    if (!least_ || bytes < bytes_of(*least_)) least_ = decision;
    if (bytes > config_.memory_limit) return std::nullopt;
    add_bytes(decision);
    return decision;
  }

  std::optional<PlanDecision> any_with_zero(int64_t zero) {
    RunConfig trial = config_;
    trial.zero_stage = zero;
    bool is_leanest = true;
    for (const std::string& policy : policies_ | std::views::reverse) {
      trial.activations = policy;
      for (const auto& [rule, micro_batch] : pieces()) {
        trial.batch_norm_rule = rule;
        trial.micro_batch_size = micro_batch;
        const PlanDecision decision =
            requested_plan(trial, world_size_, memory_);
        if (!decision.plan) continue;
        const MemoryFit fit = memory_.fit(trial, *decision.plan);
        if (fit == MemoryFit::kFits) return decision;
        // With several pipeline stages, the stages and their state differ by
        // trial.
        const bool keeps_state =
            decision.plan->layout.pipeline_parallel_size == 1;
        if (fit == MemoryFit::kStateTooLarge && keeps_state) {
          return std::nullopt;
        }
        if (is_leanest && exceeds_by_far(trial, *decision.plan)) {
          return std::nullopt;
        }
        is_leanest = false;
      }
    }
    return std::nullopt;
  }

  // Pairs of batch-norm rule and micro-batch size (0: the default), the
  // smallest first. The rule determines each rank's images and the cuts between
  // stages.
  std::vector<std::pair<plan::BatchNormRule, int64_t>> pieces() const {
    const int64_t micro_batch = config_.micro_batch_size;
    std::vector<std::pair<plan::BatchNormRule, int64_t>> all;
    for (const plan::BatchNormRule& rule : rules_ | std::views::reverse) {
      if (micro_batch == 0) {
        all.emplace_back(rule,
                         plan::largest_group(config_.global_batch_size, rule));
      }
      all.emplace_back(rule, micro_batch);
    }
    if (micro_batch > 0) {
      // Rules with fewer images in a micro-batch of whole groups come first.
      std::ranges::stable_sort(all, {}, [this](const auto& piece) {
        return images_at_once(piece.first);
      });
    }
    return all;
  }

  // The images in the request's first micro-batch of whole groups.
  int64_t images_at_once(const plan::BatchNormRule& rule) const {
    const int64_t batch = config_.global_batch_size;
    const plan::BatchCut cut = {batch, data_ranks_, config_.micro_batch_size,
                                rule};
    if (plan::groups_error(cut)) return batch;
    return plan::part_of(cut, batch, plan::kManyCells,
                         /*data_parallel_rank=*/0)
        .micro_batches.front()
        .size();
  }

  // Whether the plan with the least memory exceeds the limit by more than 40 %:
  // then no other plan is expected to fit.
  bool exceeds_by_far(const RunConfig& leanest, const plan::Plan& plan) {
    RunConfig relaxed = leanest;
    relaxed.memory_limit += relaxed.memory_limit / 5 * 2;
    return memory_.fit(relaxed, plan) != MemoryFit::kFits;
  }

  int64_t largest_group_of(const plan::Plan& plan) const {
    return plan::largest_group(config_.global_batch_size,
                               plan.batch_norm_rule());
  }

  double seconds_of(const RunConfig& trial, const plan::Plan& plan) const {
    return plan_time(trial, plan, memory_.model()).total();
  }

  void add_bytes(PlanDecision& decision) const {
    decision.reason += ", " + format_bytes(bytes_of(decision)) + " of " +
                       format_bytes(config_.memory_limit) + " needed with " +
                       boxes_text(decision.plan->micro_batch_size);
    decision.plan->reason = decision.reason;
  }

  // The number of boxes that the predicted bytes assume.
  std::string boxes_text(int64_t micro_batch) const {
    const predict::LabelBound labels = predict::label_bound(config_);
    if (!labels.statistics.is_known()) {
      return cat(labels.assumed_boxes_per_image,
                 " boxes per image, as assumed");
    }
    return "at most " +
           counted(predict::most_boxes(labels, micro_batch).boxes, "box") +
           " in a micro-batch, by the data set's labels";
  }

  const RunConfig& config_;
  const int world_size_;
  PlanMemory& memory_;
  const int data_ranks_;
  const int64_t last_zero_;  // the last ZeRO stage to try
  const std::vector<plan::BatchNormRule> rules_;
  std::vector<std::string> policies_;
  bool wants_least_ = false;  // predict also candidates that do not fit
  // The smallest candidate, the last candidate that was tried and is valid, and
  // the refusal of the first invalid candidate.
  std::optional<PlanDecision> least_, last_, invalid_;
};

// The best plan of one layout.
struct LayoutPlan {
  PlanDecision decision;
  double seconds = 0;
  // true if a plan without a limit would have the same batch-norm groups
  bool keeps_groups = false;
  bool exchanges_far = false;
  std::string statistics = "";  // the cost of batch-norm exchanges as text

  // Whether no other plan can be faster or simpler, or on cards none is
  // compared.
  bool is_plain(bool on_cards) const {
    const plan::Plan& plan = *decision.plan;
    return plan.layout.data_parallel_size == plan.layout.world_size() &&
           keeps_groups &&
           (on_cards || (plan.zero_stage == 0 &&
                         plan.activation_policies.empty() && !exchanges_far));
  }
};

std::string exchanges_text(const LayoutPlan& chosen) {
  return chosen.exchanges_far ? "; " + chosen.statistics : "";
}

// The comparison with the other layouts, as text.
std::string others_text(const std::vector<LayoutPlan>& plans,
                        const LayoutPlan& chosen, size_t num_layouts,
                        bool is_limited) {
  constexpr size_t kMostNamed = 3;
  std::string text;
  size_t named = 0;
  for (const LayoutPlan& other : plans) {
    if (&other == &chosen || named == kMostNamed) continue;
    ++named;
    text += cat(text.empty() ? "; " : ", ",
                plan::to_string(other.decision.plan->layout), " would take ",
                fixed_text(other.seconds / chosen.seconds, 2), " x the time");
  }
  const size_t unnamed = plans.size() - 1 - named;
  if (unnamed > 0) text += cat(", ", unnamed, " more fit");
  const size_t unfit = num_layouts - plans.size();
  if (unfit > 0) {
    text += (text.empty() ? "; " : ", ") +
            counted(static_cast<int64_t>(unfit), "other layout") +
            (!is_limited  ? " refused"
             : unfit == 1 ? " does not fit"
                          : " do not fit");
  }
  return text;
}

// The fastest of the plans that `plan_of` finds for the layouts of all workers;
// no value if no layout has a plan.
template <typename PlanOf>
std::optional<PlanDecision> fastest_layout(const RunConfig& config,
                                           int world_size,
                                           const ModelOnCard& model,
                                           const PlanOf& plan_of) {
  const std::vector<plan::ParallelLayout> layouts =
      plan::layouts_of(world_size);
  std::vector<LayoutPlan> plans;
  for (const plan::ParallelLayout& layout : layouts) {
    RunConfig trial = config;
    trial.layout = layout;
    std::optional<PlanDecision> found = plan_of(trial);
    if (!found || !found->plan) continue;
    LayoutPlan one = {*std::move(found)};
    const plan::Plan& plan = *one.decision.plan;
    const predict::StepEstimate step = plan_time(config, plan, model);
    one.seconds = step.total();
    one.exchanges_far = exchanges_far(config, plan);
    one.statistics = statistics_text(step);
    one.keeps_groups = plan.batch_norm_rule() == batch_norm_rule(config);
    if (one.is_plain(computes_on_cards(config.device))) {
      one.decision.reason += exchanges_text(one);
      return std::move(one.decision);
    }
    plans.push_back(std::move(one));
  }
  if (std::ranges::any_of(plans, &LayoutPlan::keeps_groups)) {
    std::erase_if(plans,
                  [](const LayoutPlan& one) { return !one.keeps_groups; });
  }
  if (plans.empty()) return std::nullopt;
  const double least =
      std::ranges::min_element(plans, {}, &LayoutPlan::seconds)->seconds;
  // The simplest layouts come first.
  const auto chosen =
      std::ranges::find_if(plans, [least](const LayoutPlan& one) {
        return one.seconds <= (1 + predict::kEqualWithin) * least;
      });
  PlanDecision decision = chosen->decision;
  decision.reason += exchanges_text(*chosen);
  decision.reason +=
      others_text(plans, *chosen, layouts.size(), config.memory_limit > 0);
  return decision;
}

PlanDecision best_without_limit(const RunConfig& config, int world_size,
                                PlanMemory& memory) {
  PlanDecision decision = requested_plan(config, world_size, memory);
  if (config.command != "train" || memory.layers().empty()) return decision;
  if (!config.layout && decision.plan &&
      exchanges_far(config, *decision.plan)) {
    const auto plan_of = [&](const RunConfig& trial) {
      return std::optional(requested_plan(trial, world_size, memory));
    };
    if (auto found =
            fastest_layout(config, world_size, memory.model(), plan_of)) {
      decision = *std::move(found);
    }
  }
  if (decision.plan) memory.set_bytes(config, *decision.plan);
  return decision;
}

PlanDecision best_within_limit(const RunConfig& config, int world_size,
                               PlanMemory& memory) {
  const auto best_if_any = [&](const RunConfig& trial) {
    FitSearch search(trial, world_size, memory);
    return search.any() ? search.best() : std::nullopt;
  };
  if (!config.layout && world_size > 1) {
    if (auto found =
            fastest_layout(config, world_size, memory.model(), best_if_any)) {
      return *found;
    }
  }
  if (auto found = best_if_any(config)) return *found;
  return FitSearch(config, world_size, memory).best_or_refusal();
}

}  // namespace

PlanDecision PlanSearch::best(const RunConfig& config, int world_size) {
  HEADROOM_CHECK(world_size >= 1, cat("world_size ", world_size));
  PlanDecision decision = fits_memory(config, layers())
                              ? best_within_limit(config, world_size, memory_)
                              : best_without_limit(config, world_size, memory_);
  if (decision.plan) {
    decision.reason =
        (config.layout ? "as asked: " : "chosen: ") + decision.reason;
    decision.plan->reason = decision.reason;
  }
  return decision;
}

std::optional<plan::Plan> PlanSearch::any(const RunConfig& config,
                                          int world_size) {
  if (!fits_memory(config, layers())) {
    return requested_plan(config, world_size, memory_).plan;
  }
  RunConfig trial = config;
  for (const plan::ParallelLayout& layout :
       config.layout ? std::vector{*config.layout}
                     : plan::layouts_of(world_size)) {
    trial.layout = layout;
    if (auto found = FitSearch(trial, world_size, memory_).any()) {
      return found->plan;
    }
  }
  return std::nullopt;
}

}  // namespace headroom::planner
