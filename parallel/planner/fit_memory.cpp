#include "parallel/planner/fit_memory.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/activation_mixture.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/stage_cut.h"

namespace headroom::planner {
namespace {

// A smaller micro-batch must need at most this share of the time.
constexpr double kWorthIt = 0.98;

int64_t bytes_of(const PlanDecision& decision) {
  return fullest_rank_bytes(*decision.plan);
}

int data_ranks(const configs::RunConfig& config, int world_size) {
  return config.layout ? config.layout->data_parallel_size : world_size;
}

// The last ZeRO stage to try: 3 if none is given and there is a data axis.
int64_t last_zero_stage(const configs::RunConfig& config, int world_size) {
  return config.zero_stage == 0 && data_ranks(config, world_size) > 1
             ? 3
             : config.zero_stage;
}

// The batch-norm groups to try: those requested, else the usual ones, then
// smaller ones.
std::vector<plan::BatchNormRule> possible_rules(
    const configs::RunConfig& config) {
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

// The activation policies to try: the requested one, else all in order of
// preference.
std::vector<std::string> possible_policies(const configs::RunConfig& config) {
  if (config.activations != "auto") return {config.activations};
  return {"keep", "recompute", "offload"};
}

enum class Effort {
  kFastest,
  kAdmissible  // finds whether a plan fits; does not mix policies
};

// Searches the plans of one request. Its arguments must outlive it.
class FitSearch {
 public:
  FitSearch(const configs::RunConfig& config, int world_size,
            const std::vector<layers::LayerCost>& layers,
            const Planner& planner, Effort effort, bool wants_least)
      : config_(config),
        world_size_(world_size),
        layers_(layers),
        planner_(planner),
        effort_(effort),
        wants_least_(wants_least) {}

  // Returns the preferred plan that fits. If none does, least() is the smallest
  // that was tried (only if requested: this takes longer).
  std::optional<PlanDecision> run() {
    for (const plan::BatchNormRule& rule : possible_rules(config_)) {
      configs::RunConfig trial = config_;
      trial.batch_norm_rule = rule;
      if (auto found = with_groups_as_they_are(trial)) return found;
    }
    return std::nullopt;
  }

  const std::optional<PlanDecision>& least() const { return least_; }
  // The refusal if the request is invalid rather than too large.
  const std::optional<PlanDecision>& refusal() const { return refusal_; }

 private:
  std::optional<PlanDecision> with_groups_as_they_are(
      const configs::RunConfig& base) {
    const int64_t last = last_zero_stage(config_, world_size_);
    std::optional<PlanDecision> best;
    double least = 0;
    for (int64_t zero = config_.zero_stage; zero <= last; ++zero) {
      configs::RunConfig trial = base;
      trial.zero_stage = zero;
      auto found = with_activations(trial);
      if (!found) continue;
      const bool keeps = found->plan->activation_policies.empty();
      const double seconds = plan_time(trial, *found->plan, layers_).total();
      if (!best || seconds < (1 - predict::kEqualWithin) * least) {
        least = seconds;
        best = std::move(found);
      }
      // A higher ZeRO stage would only communicate more.
      if (effort_ == Effort::kAdmissible || keeps) break;
    }
    return best;
  }

  std::optional<PlanDecision> with_activations(configs::RunConfig trial) {
    for (const std::string& policy : possible_policies(config_)) {
      trial.activations = policy;
      auto found = with_micro_batches(trial);
      if (!found) continue;
      const bool mixes = config_.activations == "auto" &&
                         effort_ == Effort::kFastest && policy == "recompute";
      return mixes ? fastest_mixture(trial, std::move(*found)) : found;
    }
    return std::nullopt;
  }

  std::optional<PlanDecision> with_micro_batches(configs::RunConfig trial) {
    if (auto found = attempt(trial)) return found;
    if (config_.micro_batch_size > 0 || !last_) return std::nullopt;
    // Bytes grow with the micro-batch: find the largest by bisection.
    const int64_t group = largest_group_of(*last_->plan);
    int64_t fits = 0;
    int64_t too_large = divided_up(last_->plan->micro_batch_size, group);
    std::optional<PlanDecision> best;
    while (fits + 1 < too_large) {
      const int64_t middle = fits + (too_large - fits) / 2;
      trial.micro_batch_size = middle * group;
      if (auto found = attempt(trial)) {
        best = std::move(found);
        fits = middle;
      } else {
        too_large = middle;
      }
    }
    return best;
  }

  // A smaller micro-batch leaves layers more memory. It is used if that saves
  // enough time (kWorthIt).
  PlanDecision fastest_mixture(configs::RunConfig trial, PlanDecision largest) {
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

  int64_t largest_group_of(const plan::Plan& plan) const {
    return plan::largest_group(config_.global_batch_size,
                               plan.batch_norm_rule());
  }

  double mix(const configs::RunConfig& trial, PlanDecision& decision) const {
    const double time = mix_activations(trial, layers_, *decision.plan);
    decision.reason = reason_of(trial, *decision.plan);
    say_bytes(decision);
    return time;
  }

  std::optional<PlanDecision> attempt(const configs::RunConfig& trial) {
    PlanDecision decision = planner_(trial, world_size_, layers_);
    last_.reset();
    if (!decision.plan) {
      if (!refusal_) refusal_ = std::move(decision);
      return std::nullopt;
    }
    last_ = decision;
    const bool fits =
        memory_fit(trial, layers_, *decision.plan) == MemoryFit::kFits;
    if (!fits && !wants_least_) return std::nullopt;
    predict_memory(trial, layers_, *decision.plan);
    const int64_t bytes = bytes_of(decision);
    if (!least_ || bytes < bytes_of(*least_)) least_ = decision;
    if (bytes > config_.memory_limit) return std::nullopt;
    say_bytes(decision);
    return decision;
  }

  void say_bytes(PlanDecision& decision) const {
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
    return cat("at most ", predict::most_boxes(labels, micro_batch).boxes,
               " boxes in a micro-batch, by the data set's labels");
  }

  const configs::RunConfig& config_;
  const int world_size_;
  const std::vector<layers::LayerCost>& layers_;
  const Planner& planner_;
  const Effort effort_;
  const bool wants_least_;
  std::optional<PlanDecision> least_, last_, refusal_;
};

// Searches for any plan that fits. Bytes grow with the micro-batch, but only
// several micro-batches need accumulated gradients, so both a share in one
// piece and the smallest pieces are tried.
class AnyFit {
 public:
  AnyFit(const configs::RunConfig& config, int world_size,
         const std::vector<layers::LayerCost>& layers, const Planner& planner)
      : config_(config),
        world_size_(world_size),
        layers_(layers),
        planner_(planner) {}

  std::optional<PlanDecision> run() const {
    for (int64_t zero = last_zero_stage(config_, world_size_);
         zero >= config_.zero_stage; --zero) {
      if (auto found = with_zero(zero)) return found;
    }
    return std::nullopt;
  }

 private:
  std::optional<PlanDecision> with_zero(int64_t zero) const {
    configs::RunConfig trial = config_;
    trial.zero_stage = zero;
    bool is_leanest = true;
    for (const std::string& policy :
         possible_policies(config_) | std::views::reverse) {
      trial.activations = policy;
      for (const auto& [rule, micro_batch] : pieces()) {
        trial.batch_norm_rule = rule;
        trial.micro_batch_size = micro_batch;
        const PlanDecision decision = planner_(trial, world_size_, layers_);
        if (!decision.plan) continue;
        const MemoryFit fit = memory_fit(trial, layers_, *decision.plan);
        if (fit == MemoryFit::kFits) return decision;
        // A pipeline's stages, and so its state, differ in each trial.
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

  // Pairs of groups and micro-batch size, the smallest first.
  std::vector<std::pair<plan::BatchNormRule, int64_t>> pieces() const {
    const int64_t micro_batch = config_.micro_batch_size;
    // Groups determine each rank's images and the cuts between stages.
    std::vector<std::pair<plan::BatchNormRule, int64_t>> all;
    for (const plan::BatchNormRule& rule :
         possible_rules(config_) | std::views::reverse) {
      if (micro_batch == 0) {
        all.emplace_back(rule,
                         plan::largest_group(config_.global_batch_size, rule));
      }
      all.emplace_back(rule, micro_batch);
    }
    if (micro_batch > 0) {
      // Put rules whose whole groups hold fewer images at once first.
      std::ranges::stable_sort(all, {}, [this](const auto& piece) {
        return images_at_once(piece.first);
      });
    }
    return all;
  }

  // The images in the request's first micro-batch of whole groups.
  int64_t images_at_once(const plan::BatchNormRule& rule) const {
    const int64_t batch = config_.global_batch_size;
    const plan::BatchCut cut = {batch, data_ranks(config_, world_size_),
                                config_.micro_batch_size, rule};
    if (plan::groups_error(cut)) return batch;
    return plan::part_of(cut, batch, /*smallest_map_elements=*/2,
                         /*data_parallel_rank=*/0)
        .micro_batches.front()
        .size();
  }

  // Whether even the leanest plan is so large that no other one can fit.
  bool exceeds_by_far(const configs::RunConfig& leanest,
                      const plan::Plan& plan) const {
    configs::RunConfig relaxed = leanest;
    relaxed.memory_limit += relaxed.memory_limit / 5 * 2;
    return memory_fit(relaxed, layers_, plan) != MemoryFit::kFits;
  }

  const configs::RunConfig& config_;
  const int world_size_;
  const std::vector<layers::LayerCost>& layers_;
  const Planner& planner_;
};

}  // namespace

PlanDecision fit_memory(const configs::RunConfig& config, int world_size,
                        const std::vector<layers::LayerCost>& layers,
                        const Planner& planner, PlanAnswer answer) {
  const auto search_of = [&](bool wants_least) {
    return FitSearch(config, world_size, layers, planner,
                     answer == PlanAnswer::kWhetherAdmissible
                         ? Effort::kAdmissible
                         : Effort::kFastest,
                     wants_least);
  };
  if (auto found = search_of(false).run()) return *found;
  FitSearch search = search_of(true);
  if (auto found = search.run()) return *found;
  if (!search.least()) return *search.refusal();
  const PlanDecision& least = *search.least();
  PlanDecision refused;
  refused.exit_code = ExitCode::kNoPlan;
  refused.reason = cat("a process needs ", exact_bytes(bytes_of(least)), " ",
                       fullest_phase(*least.plan), " with activations ",
                       plan::activations_text(least.plan->activation_policies),
                       " and micro-batches of ", least.plan->micro_batch_size,
                       ", but the memory limit of a process is ",
                       exact_bytes(config.memory_limit));
  return refused;
}

std::optional<PlanDecision> any_fit(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers, const Planner& planner) {
  return AnyFit(config, world_size, layers, planner).run();
}

namespace {

struct Candidate {
  PlanDecision decision;
  double seconds = 0;
  bool keeps_groups = false;  // batch-norm groups as without a limit
  bool exchanges_far = false;
  std::string statistics = "";  // the cost of batch-norm exchanges
};

std::string times_text(double factor) {
  return fixed_text(factor, 2) + " x the time";
}

// Whether no other plan can be faster or simpler.
bool is_plain(const Candidate& candidate) {
  const plan::Plan& plan = *candidate.decision.plan;
  return plan.layout.data_parallel_size == plan.layout.world_size() &&
         plan.zero_stage == 0 && plan.activation_policies.empty() &&
         candidate.keeps_groups && !candidate.exchanges_far;
}

// The comparison with the other layouts.
std::string others_text(const std::vector<Candidate>& candidates,
                        const Candidate& chosen, size_t num_layouts,
                        bool is_limited) {
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
  if (unnamed > 0) text += cat(", ", unnamed, " more fit");
  const size_t unfit = num_layouts - candidates.size();
  if (unfit > 0) {
    text += (text.empty() ? "; " : ", ") +
            counted(static_cast<int64_t>(unfit), "other layout") +
            (!is_limited  ? " refused"
             : unfit == 1 ? " does not fit"
                          : " do not fit");
  }
  return text;
}

}  // namespace

std::optional<PlanDecision> choose_layout(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers, const FitLayout& fit) {
  const plan::BatchNormRule usual_groups = batch_norm_rule(config);
  const std::vector<plan::ParallelLayout> layouts =
      plan::layouts_of(world_size);
  std::vector<Candidate> candidates;
  for (const plan::ParallelLayout& layout : layouts) {
    configs::RunConfig trial = config;
    trial.layout = layout;
    Candidate candidate{fit(trial)};
    if (!candidate.decision.plan) continue;
    const plan::Plan& plan = *candidate.decision.plan;
    const predict::StepEstimate step = plan_time(config, plan, layers);
    candidate.seconds = step.total();
    candidate.exchanges_far = exchanges_far(config, plan);
    candidate.statistics = statistics_text(step);
    candidate.keeps_groups =
        candidate.decision.plan->batch_norm_rule() == usual_groups;
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
  // The simplest candidates come first.
  const auto chosen =
      std::ranges::find_if(candidates, [least](const Candidate& one) {
        return one.seconds <= (1 + predict::kEqualWithin) * least;
      });
  PlanDecision decision = chosen->decision;
  if (chosen->exchanges_far) decision.reason += "; " + chosen->statistics;
  decision.reason +=
      others_text(candidates, *chosen, layouts.size(), config.memory_limit > 0);
  decision.plan->reason = decision.reason;
  return decision;
}

}  // namespace headroom::planner
