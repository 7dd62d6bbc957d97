#include "worker/anchors/anchor_choice.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "worker/data/sampling/random.h"

namespace headroom::anchors {
namespace {

// Makes `count` boxes for each of `shapes`; a side differs from the shape's by
// at most a tenth.
std::vector<BoxSize> boxes_around(const std::vector<Anchor>& shapes,
                                  int64_t count) {
  sampling::RandomStream random(5, 0, 0,
                                sampling::RandomPurpose::kSyntheticImage);
  std::vector<BoxSize> boxes;
  for (int64_t i = 0; i < count; ++i) {
    for (const auto& [width, height] : shapes) {
      boxes.push_back({static_cast<float>(width * random.uniform(0.9, 1.1)),
                       static_cast<float>(height * random.uniform(0.9, 1.1))});
    }
  }
  return boxes;
}

const std::vector<Anchor>& shapes() {
  static const std::vector<Anchor> all = {{6, 60},   {200, 12},  {20, 20},
                                          {40, 300}, {300, 280}, {90, 9}};
  return all;
}

double area(const Anchor& anchor) { return anchor.first * anchor.second; }

TEST(KMeans, FindsTheShapesThatBoxesGatherAround) {
  const std::vector<Anchor> wanted = {
      {20, 20}, {40, 300}, {280, 30}, {300, 280}};
  const std::vector<BoxSize> boxes = boxes_around(wanted, 3000);  // 3 chunks
  sampling::RandomStream random(1, 0, 0, sampling::RandomPurpose::kAnchors);
  std::vector<Anchor> centres = k_means(boxes, 4, 30, random, 2);
  ASSERT_EQ(centres.size(), 4u);
  std::sort(centres.begin(), centres.end());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(centres[i].first, wanted[i].first, 0.01 * wanted[i].first);
    EXPECT_NEAR(centres[i].second, wanted[i].second, 0.01 * wanted[i].second);
  }
}

TEST(KMeans, GivesNoMoreCentresThanThereAreSizes) {
  sampling::RandomStream random(1, 0, 0, sampling::RandomPurpose::kAnchors);
  const std::vector<BoxSize> two = {{3, 4}, {3, 4}, {5, 4}, {5, 4}};
  EXPECT_EQ(k_means(two, 3, 30, random, 1).size(), 2u);
  EXPECT_EQ(k_means({{3, 4}}, 3, 30, random, 1).size(), 1u);
  EXPECT_TRUE(k_means({}, 3, 30, random, 1).empty());
}

TEST(AnchorSearch, FitsEveryBoxAndBeatsKMeans) {
  const std::vector<BoxSize> boxes = boxes_around(shapes(), 200);
  const std::vector<Anchor> found = find_anchors(boxes, 6, 4, 0, 2);
  ASSERT_EQ(found.size(), 6u);
  const AnchorFit fit = fit_of(found, boxes, 4, 1);
  EXPECT_EQ(fit.best_possible_recall, 1);
  EXPECT_TRUE(std::is_sorted(
      found.begin(), found.end(),
      [](const Anchor& a, const Anchor& b) { return area(a) < area(b); }));
  // k_means() gets the same random draws as the search. The mutations that
  // follow it do not lower the fitness, except slightly, because anchors are
  // rounded to hundredths of a pixel.
  sampling::RandomStream random(0, 0, 0, sampling::RandomPurpose::kAnchors);
  const double before =
      fit_of(k_means(boxes, 6, 30, random, 1), boxes, 4, 1).fitness;
  EXPECT_GT(fit.fitness, before);
}

TEST(AnchorSearch, FollowsFromTheSeedAndNotFromThreads) {
  const std::vector<BoxSize> boxes = boxes_around(shapes(), 1500);  // 3 chunks
  const std::vector<Anchor> found = find_anchors(boxes, 9, 4, 7, 1);
  EXPECT_EQ(find_anchors(boxes, 9, 4, 7, 1), found);
  EXPECT_EQ(find_anchors(boxes, 9, 4, 7, 4), found);
  EXPECT_NE(find_anchors(boxes, 9, 4, 8, 1), found);
}

TEST(AnchorSearch, LeavesOutTheSmallestAndKeepsTwoPixels) {
  std::vector<BoxSize> boxes =
      boxes_around({{2.5, 0.6}, {30, 1}, {50, 60}}, 50);
  const std::vector<Anchor> found = find_anchors(boxes, 3, 4, 0, 1);
  ASSERT_EQ(found.size(), 3u);
  for (const auto& [width, height] : found) {
    EXPECT_GE(width, 2);
    EXPECT_GE(height, 2);
  }
  boxes.assign(100, {1.9f, 1.9f});
  EXPECT_TRUE(find_anchors(boxes, 1, 4, 0, 1).empty());
}

}  // namespace
}  // namespace headroom::anchors
