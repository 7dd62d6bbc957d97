#include "worker/metrics/nms.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::metrics {
namespace {

// Suppresses the rows of one image: centre x, y, w, h, objectness, class
// scores.
std::vector<Detection> suppress(const std::vector<std::vector<float>>& rows,
                                const NmsOptions& options) {
  std::vector<float> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  const at::Tensor decoded =
      at::tensor(flat, at::kFloat)
          .view({1, static_cast<int64_t>(rows.size()), -1});
  return non_maximum_suppression(decoded, options)[0];
}

NmsOptions options() {
  NmsOptions o;
  o.confidence_threshold = 0.25;
  o.iou_threshold = 0.45;
  return o;
}

TEST(NmsTest, BestOfOverlappingBoxesSurvives) {
  const auto kept = suppress({{50, 50, 20, 20, .6f, 1},
                              {51, 50, 20, 20, .9f, 1},
                              {90, 50, 20, 20, .7f, 1}},
                             options());
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].confidence, .9f);
  EXPECT_EQ(kept[0].box.x1, 41);
  EXPECT_EQ(kept[0].box.x2, 61);
  EXPECT_EQ(kept[1].confidence, .7f);
}

TEST(NmsTest, ClassesDoNotSuppressEachOtherUnlessAgnostic) {
  const std::vector<std::vector<float>> rows = {{50, 50, 20, 20, .9f, 1, 0},
                                                {50, 50, 20, 20, .8f, 0, 1}};
  NmsOptions o = options();
  EXPECT_EQ(suppress(rows, o).size(), 2u);
  o.agnostic = true;
  EXPECT_EQ(suppress(rows, o).size(), 1u);
}

TEST(NmsTest, FarBeyond7680PixelsClassesStayApart) {
  const std::vector<std::vector<float>> rows = {
      {20000 + 7680, 20000 + 7680, 50, 50, .9f, 1, 0},
      {20000, 20000, 50, 50, .8f, 0, 1}};
  EXPECT_EQ(suppress(rows, options()).size(), 2u);
}

TEST(NmsTest, EqualScoresKeepTheOrderOfTheRows) {
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 40; ++i)
    rows.push_back({static_cast<float>(100 * i), 50, 20, 20, .5f, 1});
  const auto kept = suppress(rows, options());
  ASSERT_EQ(kept.size(), 40u);
  for (size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(kept[i].box.x1, 100 * static_cast<float>(i) - 10);
}

TEST(NmsTest, CandidatesAndDetectionsAreLimited) {
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 10; ++i)
    rows.push_back({static_cast<float>(100 * i), 50, 20, 20,
                    .5f + .01f * static_cast<float>(i), 1});
  NmsOptions o = options();
  o.max_candidates = 4;
  EXPECT_EQ(suppress(rows, o).size(), 4u);
  EXPECT_EQ(suppress(rows, o)[0].box.x1, 890);
  o.max_detections = 2;
  EXPECT_EQ(suppress(rows, o).size(), 2u);
  o.max_detections = 0;
  EXPECT_TRUE(suppress(rows, o).empty());
}

TEST(NmsTest, PredictionsThatAreNoNumbersAreDropped) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const auto kept = suppress({{50, 50, 20, 20, nan, 1, 1},
                              {50, 50, 20, 20, .9f, nan, .5f},
                              {50, 50, inf, 20, .8f, .5f, 0},
                              {50, 50, inf, 20, .7f, .5f, 0}},
                             options());
  // Infinite boxes have no IoU, so they suppress no box.
  EXPECT_EQ(kept.size(), 3u);
}

TEST(NmsTest, EmptyInputs) {
  EXPECT_TRUE(non_maximum_suppression(at::zeros({0, 10, 6}), {}).empty());
  const auto images = non_maximum_suppression(at::zeros({2, 0, 6}), {});
  ASSERT_EQ(images.size(), 2u);
  EXPECT_TRUE(images[0].empty());
  EXPECT_THROW(non_maximum_suppression(at::zeros({2, 4, 5}), {}), CheckFailure);
}

}  // namespace
}  // namespace headroom::metrics
