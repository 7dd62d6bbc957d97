#include "worker/anchors/anchor_search.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "worker/anchors/k_means.h"
#include "worker/data/sampling/random.h"

namespace headroom::anchors {
namespace {

constexpr int64_t kClusterRounds = 30;
constexpr int64_t kMutations = 1000;
constexpr double kMutationProbability = 0.9;
constexpr double kMutationSize = 0.1;
constexpr double kLeastFactor = 0.3, kLargestFactor = 3;
// Index of each part's stream of draws.
constexpr uint64_t kClusterDraws = 0, kMutationDraws = 1;

// Box, Muller, "A note on the generation of random normal deviates", 1958.
double normal(sampling::RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

double mutated(double side, sampling::RandomStream& random) {
  // Both are drawn whether they count or not: draws keep their places.
  const bool mutates = random.uniform() < kMutationProbability;
  const double drawn = 1 + kMutationSize * normal(random);
  const double factor =
      mutates ? std::clamp(drawn, kLeastFactor, kLargestFactor) : 1;
  return std::max<double>(side * factor, kLeastSearchedSide);
}

double in_hundredths(double side) { return std::round(side * 100) / 100; }

}  // namespace

std::vector<BoxSize> searched_boxes(const std::vector<BoxSize>& boxes) {
  std::vector<BoxSize> searched;
  for (const BoxSize& box : boxes) {
    if (std::max(box.width, box.height) >= kLeastSearchedSide) {
      searched.push_back(box);
    }
  }
  return searched;
}

std::vector<Anchor> find_anchors(const std::vector<BoxSize>& boxes,
                                 int64_t num_anchors, double threshold,
                                 uint64_t seed, int64_t num_threads) {
  const std::vector<BoxSize> searched = searched_boxes(boxes);
  sampling::RandomStream cluster_draws(seed, 0, kClusterDraws,
                                       sampling::RandomPurpose::kAnchors);
  std::vector<Anchor> best = k_means(searched, num_anchors, kClusterRounds,
                                     cluster_draws, num_threads);
  if (static_cast<int64_t>(best.size()) < num_anchors) return {};
  for (auto& [width, height] : best) {
    width = std::max<double>(width, kLeastSearchedSide);
    height = std::max<double>(height, kLeastSearchedSide);
  }
  const auto fitness = [&](const std::vector<Anchor>& anchors) {
    return fit_of(anchors, searched, threshold, num_threads).fitness;
  };
  double best_fitness = fitness(best);
  sampling::RandomStream draws(seed, 0, kMutationDraws,
                               sampling::RandomPurpose::kAnchors);
  for (int64_t i = 0; i < kMutations; ++i) {
    std::vector<Anchor> candidate = best;
    for (auto& [width, height] : candidate) {
      width = mutated(width, draws);
      height = mutated(height, draws);
    }
    const double candidate_fitness = fitness(candidate);
    if (candidate_fitness <= best_fitness) continue;
    best_fitness = candidate_fitness;
    best = std::move(candidate);
  }
  for (auto& [width, height] : best) {
    width = in_hundredths(width);
    height = in_hundredths(height);
  }
  std::sort(best.begin(), best.end(), [](const Anchor& a, const Anchor& b) {
    return a.first * a.second < b.first * b.second;
  });
  return best;
}

}  // namespace headroom::anchors
