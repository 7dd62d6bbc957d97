#include "worker/anchors/anchor_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::anchors {
namespace {

struct Point {
  double x = 0, y = 0;
};

double squared_distance(const Point& a, const Point& b) {
  const double dx = a.x - b.x, dy = a.y - b.y;
  return dx * dx + dy * dy;
}

// The standard deviation of one side; 1 instead of 0, as callers divide by it.
double standard_deviation(const std::vector<BoxSize>& boxes,
                          float BoxSize::*side) {
  double sum = 0, squares = 0;
  for (const BoxSize& box : boxes) sum += box.*side;
  const double mean = sum / static_cast<double>(boxes.size());
  for (const BoxSize& box : boxes) {
    squares += (box.*side - mean) * (box.*side - mean);
  }
  const double deviation =
      std::sqrt(squares / static_cast<double>(boxes.size()));
  return deviation > 0 ? deviation : 1;
}

class Clusters {
 public:
  Clusters(const std::vector<BoxSize>& boxes, int64_t num_threads)
      : spread_{standard_deviation(boxes, &BoxSize::width),
                standard_deviation(boxes, &BoxSize::height)},
        num_threads_(num_threads),
        nearest_(boxes.size(), -1),
        distances_(boxes.size(), std::numeric_limits<double>::infinity()) {
    for (const BoxSize& box : boxes) {
      points_.push_back({box.width / spread_.x, box.height / spread_.y});
    }
  }

  size_t size() const { return centres_.size(); }

  // Adds a centre: one of the boxes, drawn with a probability in proportion to
  // its squared distance from the nearest centre. Returns false if every box is
  // a centre already.
  bool add(sampling::RandomStream& random) {
    double total = 0;
    for (const double distance : distances_) total += distance;
    size_t chosen = 0;
    if (centres_.empty()) {
      chosen = static_cast<size_t>(
          random.below(static_cast<int64_t>(points_.size())));
    } else {
      if (total == 0) return false;
      double left = random.uniform() * total;
      for (size_t i = 0; i < points_.size(); ++i) {
        if (distances_[i] == 0) continue;
        chosen = i;
        left -= distances_[i];
        if (left < 0) break;
      }
    }
    const Point centre = points_[chosen];
    centres_.push_back(centre);
    for (size_t i = 0; i < points_.size(); ++i) {
      distances_[i] =
          std::min(distances_[i], squared_distance(points_[i], centre));
    }
    return true;
  }

  // One round of Lloyd's algorithm: assigns every box to its nearest centre,
  // then moves every centre to the mean of its boxes. Returns false if no box
  // changed its centre.
  bool move() {
    struct Sums {
      std::vector<double> x, y, count;
      bool moved = false;
    };
    const size_t k = centres_.size();
    std::vector<Sums> sums(static_cast<size_t>(num_chunks(points_.size())));
    for_each_chunk(points_.size(), num_threads_,
                   [&](int64_t chunk, size_t begin, size_t end) {
                     Sums& sum = sums[static_cast<size_t>(chunk)];
                     sum.x.resize(k), sum.y.resize(k), sum.count.resize(k);
                     for (size_t i = begin; i < end; ++i) {
                       const size_t nearest = nearest_to(points_[i]);
                       sum.moved |=
                           std::exchange(nearest_[i],
                                         static_cast<int64_t>(nearest)) !=
                           static_cast<int64_t>(nearest);
                       sum.x[nearest] += points_[i].x;
                       sum.y[nearest] += points_[i].y;
                       sum.count[nearest] += 1;
                     }
                   });
    bool moved = false;
    for (const Sums& sum : sums) moved |= sum.moved;
    for (size_t c = 0; c < k; ++c) {
      Point total;
      double count = 0;
      for (const Sums& sum : sums) {
        total.x += sum.x[c];
        total.y += sum.y[c];
        count += sum.count[c];
      }
      // A centre without boxes stays where it is.
      if (count > 0) centres_[c] = {total.x / count, total.y / count};
    }
    return moved;
  }

  std::vector<Anchor> centres() const {
    std::vector<Anchor> sizes;
    for (const Point& centre : centres_) {
      sizes.emplace_back(centre.x * spread_.x, centre.y * spread_.y);
    }
    return sizes;
  }

 private:
  size_t nearest_to(const Point& point) const {
    size_t nearest = 0;
    double least = std::numeric_limits<double>::infinity();
    for (size_t c = 0; c < centres_.size(); ++c) {
      const double distance = squared_distance(point, centres_[c]);
      if (distance >= least) continue;
      least = distance;
      nearest = c;
    }
    return nearest;
  }

  Point spread_;
  int64_t num_threads_;
  std::vector<Point> points_, centres_;
  std::vector<int64_t> nearest_;
  std::vector<double> distances_;  // squared distance to the nearest centre
};

constexpr int64_t kClusterRounds = 30;
constexpr int64_t kMutations = 1000;
constexpr double kMutationProbability = 0.9;
constexpr double kMutationSize = 0.1;
constexpr double kLeastFactor = 0.3, kLargestFactor = 3;
// Indices of the random streams for k-means and for the mutations.
constexpr uint64_t kClusterDraws = 0, kMutationDraws = 1;

// Draws from N(0, 1) by the Box-Muller method (1958).
double normal(sampling::RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

double mutated(double side, sampling::RandomStream& random) {
  // `drawn` is drawn even if unused, so that later draws do not change.
  const bool mutates = random.uniform() < kMutationProbability;
  const double drawn = 1 + kMutationSize * normal(random);
  const double factor =
      mutates ? std::clamp(drawn, kLeastFactor, kLargestFactor) : 1;
  return std::max<double>(side * factor, kLeastSearchedSide);
}

double in_hundredths(double side) { return std::round(side * 100) / 100; }

}  // namespace

std::vector<Anchor> k_means(const std::vector<BoxSize>& boxes,
                            int64_t num_clusters, int64_t num_iterations,
                            sampling::RandomStream& random,
                            int64_t num_threads) {
  if (boxes.empty()) return {};
  Clusters clusters(boxes, num_threads);
  while (static_cast<int64_t>(clusters.size()) < num_clusters &&
         clusters.add(random)) {
  }
  for (int64_t i = 0; i < num_iterations && clusters.move(); ++i) {
  }
  return clusters.centres();
}

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

namespace {

std::vector<Anchor> all_of(const layers::AnchorList& levels) {
  std::vector<Anchor> all;
  for (const auto& level : levels) {
    all.insert(all.end(), level.begin(), level.end());
  }
  return all;
}

layers::AnchorList in_levels(const std::vector<Anchor>& anchors,
                             size_t per_level) {
  layers::AnchorList levels;
  for (size_t i = 0; i < anchors.size(); i += per_level) {
    const auto begin = anchors.begin() + static_cast<std::ptrdiff_t>(i);
    levels.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(per_level));
  }
  return levels;
}

// "0.7383 of 107 boxes, 16 of them with a side under 3 px"
std::string answered_text(double recall, const std::vector<BoxSize>& boxes) {
  const auto tiny = std::count_if(boxes.begin(), boxes.end(), is_tiny);
  return cat(
      fixed_text(recall, 4), " of ", counted(std::ssize(boxes), "box"),
      tiny == 0 ? "" : cat(", ", tiny, " of them with a side under 3 px"));
}

}  // namespace

AnchorChoice choose_anchors(const AnchorQuestion& question) {
  HEADROOM_CHECK(!question.current.empty(), "anchors without a level");
  const auto recall_of = [&](const std::vector<Anchor>& anchors) {
    return fit_of(anchors, question.varied, question.threshold,
                  question.num_threads)
        .best_possible_recall;
  };
  const std::vector<Anchor> current = all_of(question.current);
  AnchorChoice choice;
  choice.anchors = question.current;
  choice.recall = choice.recall_before = recall_of(current);
  const std::string judged = "the model's anchors match " +
                             answered_text(choice.recall, question.boxes);
  if (choice.recall > kEnoughRecall && !question.must_find) {
    choice.reason = judged + ": kept, more than 0.98 is enough";
    return choice;
  }
  const std::string count = std::to_string(current.size());
  const std::vector<Anchor> found =
      find_anchors(question.boxes, static_cast<int64_t>(current.size()),
                   question.threshold, question.seed, question.num_threads);
  if (found.empty()) {
    const std::string too_few = "fewer than " + count +
                                " different sizes of 2 px or more to find " +
                                count + " anchors from";
    if (question.must_find) {
      throw Error("anchors", "the training boxes have " + too_few,
                  "keep the model's: --set hyp.anchors=0", ExitCode::kData);
    }
    choice.reason = judged + "; kept, for the boxes have " + too_few;
    return choice;
  }
  const double recall = recall_of(found);
  if (recall <= choice.recall && !question.must_find) {
    choice.reason = judged + "; kept, for " + count +
                    " found from the boxes match " + fixed_text(recall, 4);
    return choice;
  }
  choice.anchors = in_levels(found, question.current.front().size());
  choice.found = true;
  choice.recall = recall;
  choice.reason = judged + "; replaced by " + count +
                  " found from the boxes, which match " +
                  fixed_text(recall, 4) + ": " +
                  layers::to_text(choice.anchors);
  return choice;
}

}  // namespace headroom::anchors
