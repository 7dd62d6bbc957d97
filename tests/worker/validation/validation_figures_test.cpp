#include "worker/validation/validation_figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "configs/options.h"
#include "parallel/base/check.h"
#include "tests/support/run_ranks.h"
#include "worker/metrics/coco_evaluation.h"
#include "worker/validation/validate.h"

namespace headroom::validation {
namespace {

TEST(ValidationFigures, EachNameOfBestMetricIsAMetric) {
  ValidationResult result;
  result.precision = 0.5;
  result.recall = 0.6;
  result.map50 = 0.4;
  result.map = 0.2;
  EXPECT_DOUBLE_EQ(result.metric("fitness"), 0.1 * 0.4 + 0.9 * 0.2);
  EXPECT_EQ(result.metric("mAP50"), 0.4);
  EXPECT_EQ(result.metric("mAP"), 0.2);
  EXPECT_EQ(result.metric("recall"), 0.6);
  EXPECT_EQ(result.metric("precision"), 0.5);
  for (const std::string& name : configs::find_key("best_metric")->choices) {
    EXPECT_NO_THROW(result.metric(name)) << name;
  }
  EXPECT_THROW(result.metric("loss"), CheckFailure);
}

ValidationOptions options_of_classes(int num_classes) {
  ValidationOptions options;
  for (int c = 0; c < num_classes; ++c) {
    options.class_names.push_back("class " + std::to_string(c));
  }
  options.keeps_curves = options.keeps_all = true;
  return options;
}

// Class 3 has no labels, class 4 no detections. Few confidences, so that many
// are equal.
ImageFindings image_of(int64_t sample) {
  std::mt19937 random(static_cast<unsigned>(sample));
  ImageFindings image;
  image.sample = sample;
  const auto box = [&] {
    const auto x = static_cast<float>(random() % 40);
    return metrics::Corners{x, x, x + 20, x + 20};
  };
  for (unsigned i = 0; i < random() % 4; ++i) {
    image.labels.push_back({box(), static_cast<int32_t>(random() % 3)});
  }
  image.labels.push_back({box(), 4});
  for (unsigned i = 0; i < random() % 12; ++i) {
    image.detections.push_back({box(), static_cast<float>(1 + random() % 4) / 5,
                                static_cast<int32_t>(random() % 4)});
  }
  std::ranges::stable_sort(image.detections, std::ranges::greater{},
                           &metrics::Detection::confidence);
  return image;
}

constexpr int64_t kBatches = 23, kBatchImages = 3;

BatchFindings batch_of(int64_t number, const ValidationOptions& options) {
  BatchFindings batch;
  batch.losses = {1.0 / static_cast<double>(number + 1),
                  0.1 * static_cast<double>(number), 1e-9};
  batch.faults = {"fault " + std::to_string(number)};
  for (int64_t i = 0; i < kBatchImages; ++i) {
    add_image(image_of(number * kBatchImages + i), options, batch);
  }
  return batch;
}

ValidationResult summary_of(collectives::Communicator& ranks,
                            const ValidationOptions& options) {
  RankFindings mine(options.class_names.size());
  for (int64_t b = ranks.rank(); b < kBatches; b += ranks.size()) {
    mine.add(batch_of(b, options));
  }
  return summarise(ranks, std::move(mine), options);
}

void expect_equal_figures(const ValidationResult& a,
                          const ValidationResult& b) {
  EXPECT_EQ(a.images, b.images);
  EXPECT_EQ(a.labels, b.labels);
  for (const auto figure :
       {&ValidationResult::precision, &ValidationResult::recall,
        &ValidationResult::map50, &ValidationResult::map,
        &ValidationResult::coco_map50, &ValidationResult::coco_map}) {
    EXPECT_EQ(a.*figure, b.*figure);
  }
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.classes.size(), b.classes.size());
  for (size_t i = 0; i < a.classes.size(); ++i) {
    EXPECT_EQ(a.classes[i].name, b.classes[i].name);
    EXPECT_EQ(a.classes[i].class_index, b.classes[i].class_index);
    EXPECT_EQ(a.classes[i].labels, b.classes[i].labels);
    EXPECT_EQ(a.classes[i].precision, b.classes[i].precision);
    EXPECT_EQ(a.classes[i].map, b.classes[i].map);
  }
}

TEST(ValidationFigures, OfSeveralRanksEqualThoseOfOneToTheBit) {
  const ValidationOptions options = options_of_classes(5);
  const ValidationResult one =
      summary_of(*collectives::make_single_communicator(), options);
  EXPECT_EQ(one.images, kBatches * kBatchImages);
  EXPECT_GT(one.map, 0);
  EXPECT_EQ(one.classes.size(), 4u);
  for (const int size : {2, 3, 5}) {
    for (const RankBackend backend :
         {RankBackend::kLocal, RankBackend::kSharedMemory,
          RankBackend::kLazyNetwork}) {
      SCOPED_TRACE(std::to_string(size) + " ranks, " + to_string(backend));
      std::vector<ValidationResult> results(static_cast<size_t>(size));
      run_ranks(size,
                [&](int rank, collectives::Communicator& ranks) {
                  results[static_cast<size_t>(rank)] =
                      summary_of(ranks, options);
                },
                {.backend = backend});
      for (const ValidationResult& result : results) {
        expect_equal_figures(result, one);
      }
      EXPECT_EQ(results[0].faults, one.faults);
      EXPECT_EQ(results[0].confusions, one.confusions);
      ASSERT_EQ(results[0].curves.curves.size(), one.curves.curves.size());
      for (size_t c = 0; c < one.curves.curves.size(); ++c) {
        EXPECT_EQ(results[0].curves.curves[c].precision,
                  one.curves.curves[c].precision);
      }
      ASSERT_EQ(std::ssize(results[0].found), kBatches * kBatchImages);
      for (size_t i = 0; i < results[0].found.size(); ++i) {
        EXPECT_EQ(results[0].found[i].sample, static_cast<int64_t>(i));
      }
      EXPECT_TRUE(results[1].found.empty());
      EXPECT_TRUE(results[1].faults.empty());
    }
  }
}

TEST(ValidationFigures, AreThoseOfAllRecordsPooled) {
  const ValidationOptions options = options_of_classes(5);
  std::vector<metrics::DetectionRecord> yolo, coco;
  std::vector<int64_t> labels(5);
  const auto append = [](auto& all, const auto& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (int64_t sample = 0; sample < kBatches * kBatchImages; ++sample) {
    const ImageFindings image = image_of(sample);
    append(yolo, metrics::match_records(image.detections, image.labels));
    append(coco, metrics::coco_match_records(image.detections, image.labels));
    for (const auto& label : image.labels) ++labels[label.class_index];
  }
  const ValidationResult result =
      summary_of(*collectives::make_single_communicator(), options);
  const auto expected = metrics::compute_average_precision(yolo, labels);
  EXPECT_EQ(result.map, expected.map);
  EXPECT_EQ(result.recall, expected.recall);
  EXPECT_EQ(result.coco_map,
            metrics::compute_coco_average_precision(coco, labels).map);
}

// COCO counts at most 100 detections of a class in an image.
TEST(ValidationFigures, CocoCountsAHundredDetectionsOfAClass) {
  const ValidationOptions options = options_of_classes(2);
  const metrics::Corners box{0, 0, 10, 10}, away{50, 50, 60, 60};
  ImageFindings image;
  image.labels = {{box, 0}, {box, 1}};
  for (int i = 0; i < 100; ++i) image.detections.push_back({away, 0.9f, 0});
  image.detections.push_back({box, 0.5f, 0});
  image.detections.push_back({box, 0.4f, 1});
  BatchFindings batch;
  add_image(image, options, batch);
  RankFindings mine(2);
  mine.add(std::move(batch));
  const ValidationResult result = summarise(
      *collectives::make_single_communicator(), std::move(mine), options);
  EXPECT_NEAR(result.coco_map50, 0.5, 1e-9);  // only class 1
  EXPECT_GT(result.map50, 0.5);
}

struct Ranked {
  size_t class_index = 0;
  float confidence = 0;
  uint32_t turn = 0;
  uint16_t mark = 0;
  bool operator==(const Ranked&) const = default;
};

// Whatever the number of records that fit into a message.
TEST(RecordMerge, RanksTheRecordsOfAllRanksByConfidenceAndBatch) {
  constexpr size_t kClasses = 3;
  constexpr uint32_t kTurns = 9;
  const auto records_of = [](int rank, uint32_t turn) {
    std::mt19937 random(100u * static_cast<unsigned>(rank) + turn);
    std::vector<FoundRecord> records;
    for (unsigned i = 0; i < random() % 9; ++i) {
      records.push_back({static_cast<float>(random() % 3),
                         static_cast<int32_t>(random() % kClasses),
                         static_cast<uint16_t>(random()),
                         static_cast<uint16_t>(rank)});
    }
    return records;
  };
  constexpr int kRanks = 3;
  std::vector<Ranked> expected;
  std::vector<std::vector<int64_t>> counts(kRanks,
                                           std::vector<int64_t>(kClasses));
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const FoundRecord& one : records_of(rank, turn)) {
        const auto c = static_cast<size_t>(one.class_index);
        expected.push_back({c, one.confidence, turn, one.yolov5});
        ++counts[static_cast<size_t>(rank)][c];
      }
    }
  }
  std::ranges::stable_sort(expected, [](const Ranked& a, const Ranked& b) {
    return a.class_index != b.class_index ? a.class_index < b.class_index
                                          : a.confidence > b.confidence;
  });
  for (const int64_t most_bytes : {1, 60, 1 << 20}) {
    std::vector<Ranked> merged;
    run_ranks(kRanks, [&](int rank, collectives::Communicator& ranks) {
      ClassRecords mine(kClasses);
      for (uint32_t turn = 0; turn < kTurns; ++turn) {
        mine.add_batch(records_of(rank, turn));
      }
      if (rank != 0) return send_records(ranks, std::move(mine), most_bytes);
      RecordMerge merge(ranks, std::move(mine), counts, most_bytes);
      for (size_t c = 0; c < kClasses; ++c) {
        merge.next_class([&](const ClassRecord& one) {
          merged.push_back({c, one.confidence, one.turn, one.yolov5});
        });
      }
    });
    EXPECT_EQ(merged, expected) << most_bytes;
  }
}

TEST(RecordMerge, AClassThatIsNotThereIsRefused) {
  ClassRecords records(2);
  EXPECT_THROW(records.add_batch({{0.5f, 2, 0, 0}}), CheckFailure);
  EXPECT_THROW(records.add_batch({{0.5f, -1, 0, 0}}), CheckFailure);
}

}  // namespace
}  // namespace headroom::validation
