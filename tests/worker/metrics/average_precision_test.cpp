#include "worker/metrics/average_precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
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

// The curve with a point after each detection.
PrecisionCurve whole_curve(const std::vector<bool>& hits, int64_t labels,
                           double recall_epsilon, double precision_epsilon) {
  PrecisionCurve curve;
  double correct = 0, seen = 0;
  for (const bool hit : hits) {
    correct += hit ? 1 : 0;
    seen += 1;
    curve.recall.push_back(correct /
                           (static_cast<double>(labels) + recall_epsilon));
    curve.precision.push_back(correct / (seen + precision_epsilon));
  }
  return curve;
}

// To the bit, because figures of different versions are compared.
TEST(AveragePrecisionTest, APartOfACurvesPointsHasTheFiguresOfAll) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const unsigned one_in = 1 + random() % 12;
    std::vector<bool> hits(1 + random() % 40);
    ClassRanking ranking;
    for (size_t d = 0; d < hits.size(); ++d) {
      hits[d] = random() % one_in == 0;
      ranking.add(hits[d] ? 1 << 3 : 0);
    }
    const int64_t labels = ranking.num_correct(3) + 1 + random() % 5;
    for (const double epsilon : {0.0, 1e-16}) {
      const PrecisionCurve whole = whole_curve(hits, labels, epsilon, 0);
      const PrecisionCurve part = ranking.curve(3, labels, epsilon, 0);
      ASSERT_LE(part.recall.size(), 2 + 2 * static_cast<size_t>(labels));
      ASSERT_EQ(area_under(part), area_under(whole));
      const auto all = envelope_of(whole), some = envelope_of(part);
      for (const double at : {0.0, 0.1, 1.0 / 3, 0.5, 0.9, 1.0}) {
        ASSERT_EQ(interpolate(some.recall, some.precision, at),
                  interpolate(all.recall, all.precision, at));
      }
      ASSERT_EQ(coco_step_average(ranking.curve(3, labels, 0, epsilon)),
                coco_step_average(whole_curve(hits, labels, 0, epsilon)));
    }
  }
}

TEST(AveragePrecisionTest, ValuesAtConfidencesAreInterpolated) {
  std::mt19937 random(2);
  for (int i = 0; i < 100; ++i) {
    std::vector<double> confidences, values;
    for (unsigned d = 0; d < 1 + random() % 30; ++d) {
      // Some are equal to each other or to one of the places that are read.
      confidences.push_back(random() % 2 == 0
                                ? static_cast<double>(random() % 1000) / 999
                                : static_cast<float>(random() % 50) / 50.0f);
      values.push_back(static_cast<double>(random() % 100) / 7);
    }
    std::ranges::sort(confidences, std::ranges::greater{});
    ValuesAtConfidences reader(/*above=*/0.25);
    std::vector<double> negated;
    for (size_t d = 0; d < values.size(); ++d) {
      reader.add(confidences[d], values[d]);
      negated.push_back(-confidences[d]);
    }
    const std::vector<double> read = reader.finish();
    ASSERT_EQ(read.size(), kNumCurvePoints);
    for (size_t place = 0; place < read.size(); ++place) {
      const double at = -static_cast<double>(place) / (kNumCurvePoints - 1);
      ASSERT_EQ(read[place],
                at < negated.front() ? 0.25 : interpolate(negated, values, at));
    }
  }
}

}  // namespace
}  // namespace headroom::metrics
