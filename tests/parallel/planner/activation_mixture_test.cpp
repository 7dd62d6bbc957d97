#include "parallel/planner/activation_mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <tuple>
#include <utility>

namespace headroom::planner {
namespace {

using enum plan::ActivationPolicy;
using Choice = MixtureLayer::Choice;

MixtureLayer layer_of(int64_t map) {
  return {{{kKeep, 0, 4 * map, 6 * map},
           {kLean, 1, 2 * map, 5 * map},
           {kRecompute, 8, map, 6 * map}}};
}

double seconds_of(const std::vector<MixtureLayer>& layers,
                  const ActivationPolicies& policies) {
  double seconds = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    seconds +=
        std::ranges::find(layers[i].choices, policies[i], &Choice::policy)
            ->seconds;
  }
  return seconds;
}

// The peak by the rule in the header.
int64_t peak_of(const std::vector<MixtureLayer>& layers,
                const ActivationPolicies& policies) {
  int64_t kept = 0, peak = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Choice& choice =
        *std::ranges::find(layers[i].choices, policies[i], &Choice::policy);
    peak =
        std::max(peak, kept + std::max(choice.busy_bytes, choice.kept_bytes));
    kept += choice.kept_bytes;
  }
  return peak;
}

// Calls `visit` with every mixture.
template <typename Visit>
void for_each_mixture(const std::vector<MixtureLayer>& layers,
                      ActivationPolicies& chosen, const Visit& visit) {
  if (chosen.size() == layers.size()) return visit(chosen);
  for (const Choice& choice : layers[chosen.size()].choices) {
    chosen.push_back(choice.policy);
    for_each_mixture(layers, chosen, visit);
    chosen.pop_back();
  }
}

double least_seconds(const MixtureRequest& request) {
  double least = std::numeric_limits<double>::infinity();
  ActivationPolicies chosen;
  for_each_mixture(
      request.layers, chosen, [&](const ActivationPolicies& policies) {
        if (request.peak_bytes(policies) <= request.limit_bytes) {
          least = std::min(least, seconds_of(request.layers, policies));
        }
      });
  return least;
}

std::vector<MixtureLayer> random_layers(std::mt19937& random, size_t count) {
  std::uniform_int_distribution<int64_t> bytes(1, 40);
  std::uniform_int_distribution<int> seconds(0, 20), num_choices(1, 4);
  std::vector<MixtureLayer> layers(count);
  for (MixtureLayer& layer : layers) {
    const int choices = num_choices(random);
    for (int i = 0; i < choices; ++i) {
      const int64_t kept = bytes(random);
      layer.choices.push_back({static_cast<plan::ActivationPolicy>(i),
                               static_cast<double>(seconds(random)), kept,
                               kept + bytes(random)});
    }
  }
  return layers;
}

TEST(ActivationMixture, EnoughMemoryKeepsEverything) {
  const std::vector<MixtureLayer> layers(3, layer_of(10));
  EXPECT_EQ(fastest_within(layers, 140),
            (ActivationPolicies{kKeep, kKeep, kKeep}));
}

TEST(ActivationMixture, TheLastLayersKeepAsMuchAsFits) {
  const std::vector<MixtureLayer> layers(3, layer_of(10));
  // All layers are equal, so a lean layer saves as many bytes and costs as much
  // time anywhere. The last layers hold their activations only for a short
  // time, so the first layers become lean.
  EXPECT_EQ(fastest_within(layers, 139),
            (ActivationPolicies{kLean, kKeep, kKeep}));
  EXPECT_EQ(fastest_within(layers, 100),
            (ActivationPolicies{kLean, kLean, kKeep}));
  EXPECT_EQ(fastest_within(layers, 90),
            (ActivationPolicies{kLean, kLean, kLean}));
  EXPECT_EQ(fastest_within(layers, 80),
            (ActivationPolicies{kRecompute, kLean, kLean}));
  EXPECT_EQ(fastest_within(layers, 69), std::nullopt);
}

TEST(ActivationMixture, FastestWithinIsBruteForcesFastest) {
  std::mt19937 random(7);
  int feasible = 0, infeasible = 0;
  for (int round = 0; round < 400; ++round) {
    const auto layers = random_layers(random, 1 + round % 7);
    const int64_t bound =
        std::uniform_int_distribution<int64_t>(20, 160)(random);
    const auto peak = [&](const ActivationPolicies& policies) {
      return peak_of(layers, policies);
    };
    const double least = least_seconds({layers, bound, peak});
    const auto found = fastest_within(layers, bound);
    ASSERT_EQ(found.has_value(), std::isfinite(least)) << round;
    if (!found) {
      ++infeasible;
      continue;
    }
    ++feasible;
    EXPECT_LE(peak_of(layers, *found), bound) << round;
    EXPECT_EQ(seconds_of(layers, *found), least) << round;
  }
  EXPECT_GT(feasible, 100);
  EXPECT_GT(infeasible, 20);
}

TEST(ActivationMixture, WhereTheRuleIsExactTheChoiceIsBruteForces) {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    MixtureRequest request;
    request.layers = random_layers(random, 1 + round % 6);
    request.limit_bytes =
        std::uniform_int_distribution<int64_t>(20, 160)(random);
    request.peak_bytes = [&](const ActivationPolicies& policies) {
      return peak_of(request.layers, policies);
    };
    const double least = least_seconds(request);
    const auto found = choose_mixture(request);
    ASSERT_EQ(found.has_value(), std::isfinite(least)) << round;
    if (found) {
      EXPECT_EQ(found->seconds, least) << round;
    }
  }
}

// Adds bytes that belong to no single layer, such as those of maps that layers
// share and of gradients that wait.
int64_t crooked_peak(const std::vector<MixtureLayer>& layers,
                     const ActivationPolicies& policies) {
  int64_t bytes = peak_of(layers, policies);
  for (size_t i = 0; i + 1 < policies.size(); ++i) {
    if (policies[i] != policies[i + 1]) bytes += 7;
    if (policies[i] == kKeep && policies[i + 1] == kKeep) bytes -= 5;
  }
  return bytes + bytes / 3;
}

TEST(ActivationMixture, TheEstimateOfTheWholeModelDecides) {
  std::mt19937 random(9);
  int found_count = 0, best_count = 0;
  for (int round = 0; round < 300; ++round) {
    MixtureRequest request;
    request.layers = random_layers(random, 2 + round % 5);
    for (MixtureLayer& layer :
         request.layers) {  // recompute is always a choice
      layer.choices.resize(1);
      layer.choices.front().policy = kRecompute;
      layer.choices.front().seconds = 30;
      for (const plan::ActivationPolicy policy : {kKeep, kLean}) {
        Choice choice = layer.choices.front();
        choice.policy = policy;
        choice.seconds = policy == kKeep ? 0 : 3;
        choice.kept_bytes *= policy == kKeep ? 4 : 2;
        choice.busy_bytes += choice.kept_bytes;
        layer.choices.push_back(choice);
      }
    }
    request.limit_bytes =
        std::uniform_int_distribution<int64_t>(60, 500)(random);
    request.peak_bytes = [&](const ActivationPolicies& policies) {
      return crooked_peak(request.layers, policies);
    };
    const ActivationPolicies recomputed(request.layers.size(), kRecompute);
    const auto found = choose_mixture(request);
    if (crooked_peak(request.layers, recomputed) <= request.limit_bytes) {
      ASSERT_TRUE(found) << round;
      EXPECT_LE(found->seconds, seconds_of(request.layers, recomputed))
          << round;
    }
    if (!found) continue;
    ++found_count;
    EXPECT_EQ(found->peak_bytes, crooked_peak(request.layers, found->policies));
    EXPECT_LE(found->peak_bytes, request.limit_bytes) << round;
    EXPECT_EQ(choose_mixture(request), found) << "not the same again";
    best_count += found->seconds == least_seconds(request);
  }
  EXPECT_GT(found_count, 150);
  // This is not guaranteed: if layers are not independent, the search is a
  // heuristic.
  EXPECT_GT(best_count, found_count * 8 / 10);
}

// The layers of a large model, and the bytes if all layers keep everything.
std::pair<std::vector<MixtureLayer>, int64_t> large_layers(std::mt19937& random,
                                                           size_t count) {
  std::uniform_int_distribution<int64_t> bytes(1'000'000, 400'000'000);
  std::uniform_real_distribution<double> seconds(0, 1);
  std::vector<MixtureLayer> layers(count);
  int64_t all = 0;
  for (MixtureLayer& layer : layers) {
    const int64_t map = bytes(random);
    const double lean = seconds(random);
    layer.choices = {{kKeep, 0, 4 * map, 5 * map},
                     {kLean, lean, 2 * map, 4 * map},
                     {kRecompute, 5 * lean, map, 5 * map}};
    all += 4 * map;
  }
  return {layers, all};
}

// The simplest form of fastest_within(): all states of a layer are made and
// sorted.
std::optional<ActivationPolicies> fastest_by_sorting(
    const std::vector<MixtureLayer>& layers, int64_t bound) {
  using State = std::tuple<int64_t, double, size_t, size_t>;
  constexpr size_t kMostStates = 4096;
  std::vector<std::vector<State>> states = {{State()}};
  for (const MixtureLayer& layer : layers) {
    std::vector<State> next, best, fewer;
    for (size_t before = 0; before < states.back().size(); ++before) {
      const auto& [kept, seconds, from, last] = states.back()[before];
      for (size_t i = 0; i < layer.choices.size(); ++i) {
        const Choice& choice = layer.choices[i];
        if (kept + std::max(choice.busy_bytes, choice.kept_bytes) > bound)
          continue;
        next.emplace_back(kept + choice.kept_bytes, seconds + choice.seconds,
                          before, i);
      }
    }
    if (next.empty()) return std::nullopt;
    std::ranges::sort(next);
    for (const State& state : next) {
      if (best.empty() || std::get<1>(state) < std::get<1>(best.back()))
        best.push_back(state);
    }
    const int64_t width = bound / static_cast<int64_t>(kMostStates) + 1;
    for (size_t i = 0; i < best.size(); ++i) {
      if (best.size() <= kMostStates || i == 0 || i + 1 == best.size() ||
          std::get<0>(best[i + 1]) / width != std::get<0>(best[i]) / width)
        fewer.push_back(best[i]);
    }
    states.push_back(fewer);
  }
  ActivationPolicies policies(layers.size());
  size_t place = states.back().size() - 1;
  for (size_t layer = layers.size(); layer-- > 0;) {
    const auto& [kept, seconds, before, choice] = states[layer + 1][place];
    policies[layer] = layers[layer].choices[choice].policy;
    place = before;
  }
  return policies;
}

TEST(ActivationMixture, MergingChoosesWhatSortingDoes) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const auto layers = random_layers(random, 1 + round % 30);
    for (const int64_t bound : {40, 150, 400, 1000}) {
      EXPECT_EQ(fastest_within(layers, bound),
                fastest_by_sorting(layers, bound))
          << round << ", " << bound;
    }
  }
  for (int round = 0; round < 4; ++round) {
    const auto [layers, all] = large_layers(random, 40);
    for (const int64_t bound : {all / 3, all / 2, all * 9 / 10}) {
      EXPECT_EQ(fastest_within(layers, bound),
                fastest_by_sorting(layers, bound));
    }
  }
}

TEST(ActivationMixture, ManyLayersStayQuick) {
  std::mt19937 random(10);
  const auto [layers, all] = large_layers(random, 60);
  const int64_t bound = all / 2;
  const auto found = fastest_within(layers, bound);
  ASSERT_TRUE(found);
  EXPECT_LE(peak_of(layers, *found), bound);
  EXPECT_GT(peak_of(layers, *found), bound / 1000 * 998) << "bytes are left";
}

}  // namespace
}  // namespace headroom::planner
