#include "worker/metrics/average_precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "parallel/base/check.h"
#include "worker/metrics/coco_evaluation.h"

namespace headroom::metrics {
namespace {

const Corners kA{0, 0, 100, 100};

// Records of one class. The list has 1 for a hit and 0 for a miss, in
// descending confidence.
std::vector<DetectionRecord> records_of(const std::vector<int>& hits) {
  std::vector<DetectionRecord> records;
  float confidence = 0.95f;
  for (const int hit : hits) {
    DetectionRecord record;
    record.confidence = confidence;
    record.correct.fill(hit != 0);
    records.push_back(record);
    confidence -= 0.05f;
  }
  return records;
}

TEST(AveragePrecisionTest, PublishedLists) {
  struct List {
    std::vector<int> hits;
    int64_t labels;
    double yolo, coco;
  };
  for (const List& list : {List{{1}, 1, .995, 1.0},
                           {{1}, 2, .75, .504950},
                           {{0, 1}, 1, .4975, .5},
                           {{1, 0, 1}, 2, .828333, .834983},
                           {{1, 0, 0, 1, 0}, 4, .472, .381188},
                           {{1, 1, 0, 1}, 10, .53625, .282178}}) {
    const auto records = records_of(list.hits);
    const std::vector<int64_t> labels = {list.labels};
    EXPECT_NEAR(compute_average_precision(records, labels).map50, list.yolo,
                1e-6);
    EXPECT_NEAR(compute_coco_average_precision(records, labels).map50,
                list.coco, 1e-6);
  }
}

TEST(AveragePrecisionTest, PublishedMatchings) {
  struct Scene {
    std::vector<LabelledBox> labels;
    std::vector<Detection> detections;
    double yolo50, yolo, coco50, coco;
  };
  std::vector<Detection> crowded(150, {{500, 500, 510, 510}, .9f, 0});
  crowded.push_back({kA, .5f, 0});
  const std::vector<Scene> scenes = {
      {{{kA, 0}, {{20, 0, 120, 100}, 0}},
       {{kA, .9f, 0}, {{8, 0, 108, 100}, .8f, 0}},
       .6225,
       .6225,
       1.0,
       .801980},
      {{{kA, 0}},
       {{{30, 0, 130, 100}, .9f, 0}, {kA, .8f, 0}},
       .995,
       .54725,
       1.0,
       .55},
      {{{kA, 0}}, crowded, .006589, .006589, 0, 0}};
  for (const Scene& scene : scenes) {
    const std::vector<int64_t> labels = {
        static_cast<int64_t>(scene.labels.size())};
    const auto ap = compute_average_precision(
        match_records(scene.detections, scene.labels), labels);
    EXPECT_NEAR(ap.map50, scene.yolo50, 1e-6);
    EXPECT_NEAR(ap.map, scene.yolo, 1e-6);
    const auto coco = compute_coco_average_precision(
        coco_match_records(scene.detections, scene.labels), labels);
    EXPECT_NEAR(coco.map50, scene.coco50, 1e-6);
    EXPECT_NEAR(coco.map, scene.coco, 1e-6);
  }
}

TEST(AveragePrecisionTest, OnlyClassesWithLabelsCount) {
  auto records = records_of({1});
  records.push_back(records[0]);
  records[1].class_index = 2;  // a class without labels
  records[1].correct.fill(false);
  const std::vector<int64_t> labels = {1, 3, 0};  // class 1: never detected
  const auto ap = compute_average_precision(records, labels);
  ASSERT_EQ(ap.classes.size(), 2u);
  EXPECT_EQ(ap.classes[1].class_index, 1);
  EXPECT_EQ(ap.classes[1].labels, 3);
  EXPECT_EQ(ap.classes[1].ap50(), 0);
  EXPECT_NEAR(ap.map50, .995 / 2, 1e-12);
  EXPECT_NEAR(compute_coco_average_precision(records, labels).map50, 0.5,
              1e-12);
}

TEST(AveragePrecisionTest, NothingToCompare) {
  EXPECT_EQ(compute_average_precision({}, std::vector<int64_t>{}).map50, 0);
  const std::vector<int64_t> labels = {2, 0};
  const auto ap = compute_average_precision({}, labels);
  EXPECT_EQ(ap.map50, 0);
  EXPECT_EQ(ap.precision, 0);
  EXPECT_EQ(ap.recall, 0);
  EXPECT_EQ(ap.classes.size(), 1u);
  EXPECT_EQ(compute_coco_average_precision({}, labels).map, 0);
  const auto without_labels =
      compute_average_precision(records_of({0, 0}), std::vector<int64_t>{0});
  EXPECT_TRUE(without_labels.classes.empty());
}

TEST(AveragePrecisionTest, OrderOfPoolingMattersForEqualConfidencesOnly) {
  auto records = records_of({1, 0, 1, 1, 0, 1, 0, 0});
  const std::vector<int64_t> labels = {6};
  const auto map50 = [&] {
    return compute_average_precision(records, labels).map50;
  };
  const double sorted = map50();
  std::reverse(records.begin(), records.end());
  EXPECT_EQ(map50(), sorted);

  for (DetectionRecord& record : records) record.confidence = 0.5f;
  const double reversed = map50();
  std::reverse(records.begin(), records.end());
  EXPECT_EQ(map50(), sorted);
  EXPECT_NE(reversed, sorted);
}

TEST(AveragePrecisionTest, UnknownClassIsRefused) {
  auto records = records_of({1});
  records[0].class_index = 5;
  EXPECT_THROW(compute_average_precision(records, std::vector<int64_t>{1, 1}),
               CheckFailure);
}

}  // namespace
}  // namespace headroom::metrics
