#include "parallel/planner/activation_mixture.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/plan/plan_parts.h"
#include "parallel/planner/plan_time.h"
#include "parallel/predict/simulated_stage.h"

namespace headroom::planner {
namespace {

constexpr size_t kMostStates = 4096;
constexpr int kBoundsTried = 24;
constexpr int kPasses = 3;  // how often all layers try faster policies

using Choice = MixtureLayer::Choice;

// One combination of choices for the layers so far.
struct State {
  int64_t kept = 0;
  double seconds = 0;
  uint32_t before = 0;  // index of the previous layers' state
  uint32_t choice = 0;  // the last layer's choice

  auto order() const { return std::tie(kept, seconds, before, choice); }
};

// States sorted by rising kept bytes and falling seconds: a state is left out
// if another one keeps no more bytes and is no slower (a Pareto front).
using Frontier = std::vector<State>;

// The states that result from one choice for the next layer: one new state for
// each state before that layer, in the same order.
class Branch {
 public:
  Branch(const Frontier& before, const MixtureLayer& layer, size_t choice,
         int64_t bound)
      : before_(before), choice_(layer.choices[choice]) {
    state_.choice = static_cast<uint32_t>(choice);
    const int64_t room =
        bound - std::max(choice_.busy_bytes, choice_.kept_bytes);
    while (end_ < before.size() && before[end_].kept <= room) ++end_;
    set_state();
  }

  bool is_empty() const { return state_.before == end_; }
  const State& front() const { return state_; }
  void pop() {
    ++state_.before;
    set_state();
  }

 private:
  void set_state() {
    if (is_empty()) return;
    const State& before = before_[state_.before];
    state_.kept = before.kept + choice_.kept_bytes;
    state_.seconds = before.seconds + choice_.seconds;
  }

  const Frontier& before_;
  const Choice& choice_;
  State state_;
  size_t end_ = 0;  // index of the first state that does not fit
};

// Sets `states` to the frontier after one more layer: merges one branch for
// each of the layer's choices.
void extend(const Frontier& before, const MixtureLayer& layer, int64_t bound,
            Frontier& states) {
  std::vector<Branch> branches;
  for (size_t i = 0; i < layer.choices.size(); ++i) {
    branches.emplace_back(before, layer, i, bound);
  }
  states.clear();
  for (;;) {
    Branch* next = nullptr;
    for (Branch& branch : branches) {
      if (branch.is_empty()) continue;
      if (next == nullptr || branch.front().order() < next->front().order()) {
        next = &branch;
      }
    }
    if (next == nullptr) return;
    if (states.empty() || next->front().seconds < states.back().seconds) {
      states.push_back(next->front());
    }
    next->pop();
  }
}

// If there are more than kMostStates states, divides [0, bound] into
// kMostStates parts. Keeps the first state, and for each part the fastest state
// whose kept bytes are in this part.
Frontier thinned(const Frontier& states, int64_t bound) {
  if (states.size() <= kMostStates) return states;
  const int64_t width = bound / static_cast<int64_t>(kMostStates) + 1;
  Frontier fewer = {states.front()};
  for (size_t i = 1; i < states.size(); ++i) {
    const bool is_last = i + 1 == states.size() ||
                         states[i + 1].kept / width != states[i].kept / width;
    if (is_last) fewer.push_back(states[i]);
  }
  return fewer;
}

class MixtureSearch {
 public:
  explicit MixtureSearch(const MixtureRequest& request) : request_(request) {}

  std::optional<Mixture> run() {
    try_policies_of_all_layers();
    move_bound();
    if (best_) try_faster_layers();
    return best_;
  }

 private:
  const Choice& choice_of(size_t layer, plan::ActivationPolicy policy) const {
    const auto& choices = request_.layers[layer].choices;
    const auto found = std::ranges::find(choices, policy, &Choice::policy);
    HEADROOM_CHECK(found != choices.end(),
                   cat("layer ", layer, " has no such choice"));
    return *found;
  }
  bool has_choice(size_t layer, plan::ActivationPolicy policy) const {
    return std::ranges::any_of(
        request_.layers[layer].choices,
        [policy](const Choice& choice) { return choice.policy == policy; });
  }

  // Returns whether the mixture fits.
  bool try_mixture(const ActivationPolicies& policies) {
    auto known = peaks_.find(policies);
    if (known == peaks_.end()) {
      known = peaks_.emplace(policies, request_.peak_bytes(policies)).first;
    }
    if (known->second > request_.limit_bytes) return false;
    Mixture mixture{policies, 0, known->second};
    for (size_t layer = 0; layer < policies.size(); ++layer) {
      mixture.seconds += choice_of(layer, policies[layer]).seconds;
    }
    if (!best_ || std::tie(mixture.seconds, mixture.peak_bytes) <
                      std::tie(best_->seconds, best_->peak_bytes)) {
      best_ = std::move(mixture);
    }
    return true;
  }

  void try_policies_of_all_layers() {
    for (const Choice& choice : request_.layers.front().choices) {
      ActivationPolicies policies;
      for (size_t layer = 0; layer < request_.layers.size(); ++layer) {
        if (has_choice(layer, choice.policy)) policies.push_back(choice.policy);
      }
      if (policies.size() == request_.layers.size()) try_mixture(policies);
    }
  }

  // Finds the largest bound whose mixture fits. Memory grows with the bound.
  void move_bound() {
    int64_t all_kept = 0, most_busy = 0;
    for (const MixtureLayer& layer : request_.layers) {
      int64_t kept = 0;
      for (const Choice& choice : layer.choices) {
        kept = std::max(kept, choice.kept_bytes);
        most_busy = std::max(most_busy, choice.busy_bytes);
      }
      all_kept += kept;
    }
    int64_t fits = 0, too_large = all_kept + most_busy + 1;
    if (try_bound(too_large)) return;
    for (int i = 0; i < kBoundsTried && fits + 1 < too_large; ++i) {
      const int64_t middle = fits + (too_large - fits) / 2;
      (try_bound(middle) ? fits : too_large) = middle;
    }
  }

  // Also returns true if there is no mixture within the bound, so that a larger
  // bound is tried.
  bool try_bound(int64_t bound) {
    const auto policies = fastest_within(request_.layers, bound);
    return !policies || try_mixture(*policies);
  }

  void try_faster_layers() {
    for (int pass = 0; pass < kPasses; ++pass) {
      const double before = best_->seconds;
      for (size_t layer = 0; layer < request_.layers.size(); ++layer) {
        for (const Choice& choice : request_.layers[layer].choices) {
          ActivationPolicies policies = best_->policies;
          if (choice.seconds >= choice_of(layer, policies[layer]).seconds)
            continue;
          policies[layer] = choice.policy;
          try_mixture(policies);
        }
      }
      if (best_->seconds >= before) return;
    }
  }

  const MixtureRequest& request_;
  std::map<ActivationPolicies, int64_t> peaks_;
  std::optional<Mixture> best_;
};

}  // namespace

std::optional<ActivationPolicies> fastest_within(
    const std::vector<MixtureLayer>& layers, int64_t bound) {
  std::vector<Frontier> states = {{State()}};
  Frontier next;
  for (const MixtureLayer& layer : layers) {
    extend(states.back(), layer, bound, next);
    if (next.empty()) return std::nullopt;
    states.push_back(thinned(next, bound));
  }
  ActivationPolicies policies(layers.size());
  size_t place = states.back().size() - 1;  // the fastest state
  for (size_t layer = layers.size(); layer-- > 0;) {
    const State& state = states[layer + 1][place];
    policies[layer] = layers[layer].choices[state.choice].policy;
    place = state.before;
  }
  return policies;
}

std::optional<Mixture> choose_mixture(const MixtureRequest& request) {
  HEADROOM_CHECK(!request.layers.empty(), "a mixture of no layers");
  for (const MixtureLayer& layer : request.layers) {
    HEADROOM_CHECK(!layer.choices.empty(), "a layer without a choice");
  }
  return MixtureSearch(request).run();
}

namespace {

// A layer's choices. While one micro-batch runs, the other micro-batches in
// flight still hold their kept bytes.
MixtureLayer mixture_layer(const configs::RunConfig& config,
                           const predict::MemoryByPolicy& bytes,
                           int64_t num_in_flight,
                           const layers::LayerCost& layer,
                           const CardSpeed& card) {
  MixtureLayer result;
  for (const plan::ActivationPolicy policy :
       {plan::ActivationPolicy::kKeep, plan::ActivationPolicy::kLean,
        plan::ActivationPolicy::kRecompute}) {
    const predict::LayerMemory& cost = bytes[static_cast<size_t>(policy)];
    MixtureLayer::Choice choice;
    choice.policy = policy;
    choice.seconds = planned_work(config, layer, policy, card);
    choice.kept_bytes = num_in_flight * cost.kept_bytes;
    choice.busy_bytes = (num_in_flight - 1) * cost.kept_bytes + cost.peak_bytes;
    result.choices.push_back(choice);
  }
  return result;
}

}  // namespace

double mix_activations(const configs::RunConfig& config, PlanMemory& memory,
                       plan::Plan& plan) {
  const std::vector<layers::LayerCost>& layers = memory.layers();
  const CardSpeed& card = memory.model().card;
  HEADROOM_CHECK(plan.activation_policies.size() == layers.size(),
                 "a plan that does not say what layers keep");
  predict::MemoryRequest whole = predict::memory_request(config, plan, layers);
  double time = 0;
  for (size_t stage = 0; stage < plan.stage_begins.size(); ++stage) {
    const plan::LayerRange range =
        plan::layers_of_stage(plan.stage_begins, stage, layers.size());
    const auto begin = static_cast<size_t>(range.begin);
    const auto end = static_cast<size_t>(range.end);
    const auto set = [&](const ActivationPolicies& policies) {
      std::ranges::copy(policies, whole.plan.activation_policies.begin() +
                                      static_cast<std::ptrdiff_t>(begin));
    };
    plan::MeshCoordinates rank;
    rank.pipeline_stage = static_cast<int>(stage);
    const predict::RankMicroBatch part = predict::rank_micro_batch(whole, rank);
    const std::vector<predict::MemoryByPolicy> bytes =
        predict::layer_memory_by_policy(part.stage, part.shape, part.loss);
    MixtureRequest request;
    request.limit_bytes = config.memory_limit;
    for (size_t layer = begin; layer < end; ++layer) {
      request.layers.push_back(mixture_layer(config, bytes[layer - begin],
                                             part.num_in_flight, layers[layer],
                                             card));
    }
    request.peak_bytes = [&](const ActivationPolicies& policies) {
      set(policies);
      return predict::estimate_rank_memory(whole, rank).total();
    };
    const auto mixture = choose_mixture(request);
    HEADROOM_CHECK(mixture.has_value(), "a plan that does not fit");
    set(mixture->policies);
    time += mixture->seconds;
  }
  plan.activation_policies = std::move(whole.plan.activation_policies);
  memory.set_bytes(config, plan);
  return time;
}

}  // namespace headroom::planner
