// Matching and both definitions of average precision equal those of the
// references.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/parity.h"
#include "tests/worker/metrics/ap_cases.h"
#include "worker/metrics/average_precision.h"
#include "worker/metrics/coco_evaluation.h"
#include "worker/metrics/confusion_matrix.h"

namespace headroom::metrics {
namespace {

constexpr double kTolerance = 1e-12;

struct NamedSet {
  std::string name;
  nlohmann::json figures;
  EvaluationSet set;
};

std::vector<NamedSet> parity_sets(const weights::Safetensors& tensors) {
  std::vector<NamedSet> sets;
  const nlohmann::json json = load_parity_json("ap.json");
  for (const auto& [name, figures] : json["sets"].items())
    sets.push_back(
        {name, figures,
         to_evaluation_set(tensors.at(name + ".det"), tensors.at(name + ".gt"),
                           figures["images"], figures["nc"])});
  return sets;
}

TEST(ApParityTest, ThresholdsAreTheReferences) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const at::Tensor expected = load_parity_tensors("ap.safetensors").at("iouv");
  for (size_t i = 0; i < kNumIouThresholds; ++i)
    EXPECT_EQ(iou_thresholds()[i],
              expected[static_cast<int64_t>(i)].item<float>());
}

TEST(ApParityTest, Matching) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const weights::Safetensors tensors = load_parity_tensors("ap.safetensors");
  const auto sets = parity_sets(tensors);
  ASSERT_EQ(sets.size(), 6u);
  for (const NamedSet& named : sets) {
    // The vectors list the detections of the images one after the other.
    const auto records = named.set.records();
    const auto expected =
        tensors.at(named.name + ".correct").accessor<uint8_t, 2>();
    ASSERT_EQ(static_cast<int64_t>(records.size()), expected.size(0));
    int64_t wrong = 0;
    for (size_t d = 0; d < records.size(); ++d)
      for (size_t t = 0; t < kNumIouThresholds; ++t)
        wrong +=
            records[d].correct[t] !=
            (expected[static_cast<int64_t>(d)][static_cast<int64_t>(t)] != 0);
    EXPECT_EQ(wrong, 0) << named.name;
  }
}

TEST(ApParityTest, FiguresOfAllSets) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const weights::Safetensors tensors = load_parity_tensors("ap.safetensors");
  for (const NamedSet& named : parity_sets(tensors)) {
    const nlohmann::json& expected = named.figures;
    const AveragePrecision ap = compute_average_precision(
        named.set.records(), named.set.labels_per_class);
    EXPECT_NEAR(ap.map50, expected["map50"], kTolerance) << named.name;
    EXPECT_NEAR(ap.map, expected["map5095"], kTolerance) << named.name;
    EXPECT_NEAR(ap.precision, expected["mp"], kTolerance) << named.name;
    EXPECT_NEAR(ap.recall, expected["mr"], kTolerance) << named.name;
    EXPECT_NEAR(ap.confidence, expected["best_confidence"], kTolerance)
        << named.name;
    EXPECT_NEAR(ap.fitness(), expected["fitness"], kTolerance) << named.name;

    const auto table = tensors.at(named.name + ".ap").accessor<double, 2>();
    ASSERT_EQ(ap.classes.size(), expected["classes"].size()) << named.name;
    for (size_t i = 0; i < ap.classes.size(); ++i) {
      const ClassPrecision& figures = ap.classes[i];
      const std::string what = named.name + " class " + std::to_string(i);
      EXPECT_EQ(figures.class_index, expected["classes"][i].get<int64_t>());
      EXPECT_EQ(figures.labels,
                expected["n_labels_per_class"][i].get<int64_t>());
      EXPECT_NEAR(figures.ap50(), expected["ap50"][i], kTolerance) << what;
      EXPECT_NEAR(figures.mean_ap(), expected["ap5095"][i], kTolerance) << what;
      EXPECT_NEAR(figures.precision, expected["precision"][i], kTolerance)
          << what;
      EXPECT_NEAR(figures.recall, expected["recall"][i], kTolerance) << what;
      for (size_t t = 0; t < kNumIouThresholds; ++t)
        EXPECT_NEAR(figures.ap[t],
                    table[static_cast<int64_t>(i)][static_cast<int64_t>(t)],
                    kTolerance)
            << what;
    }
  }
}

TEST(ApParityTest, CocoFiguresOfAllSets) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const weights::Safetensors tensors = load_parity_tensors("ap.safetensors");
  for (const NamedSet& named : parity_sets(tensors)) {
    const nlohmann::json& expected = named.figures["coco"];
    const CocoAveragePrecision ap = compute_coco_average_precision(
        named.set.coco_records(100), named.set.labels_per_class);
    EXPECT_NEAR(ap.map, expected["stats"][0], kTolerance) << named.name;
    EXPECT_NEAR(ap.map50, expected["stats"][1], kTolerance) << named.name;
    size_t next = 0;
    for (size_t c = 0; c < named.set.labels_per_class.size(); ++c) {
      // -1 means that the class has no labels.
      if (expected["ap_per_class"][c] == -1.0) continue;
      ASSERT_LT(next, ap.classes.size());
      const CocoClassPrecision& figures = ap.classes[next++];
      EXPECT_EQ(figures.class_index, static_cast<int64_t>(c));
      EXPECT_NEAR(figures.ap, expected["ap_per_class"][c], kTolerance);
      EXPECT_NEAR(figures.ap50, expected["ap50_per_class"][c], kTolerance);
    }
    EXPECT_EQ(next, ap.classes.size()) << named.name;
  }
}

TEST(ApParityTest, AreaToys) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json toys = load_parity_json("ap.json")["compute_ap"];
  ASSERT_EQ(toys.size(), 6u);
  for (const nlohmann::json& toy : toys) {
    const PrecisionCurve curve{toy["recall"].get<std::vector<double>>(),
                               toy["precision"].get<std::vector<double>>()};
    EXPECT_NEAR(area_under(curve), toy["ap"].get<double>(), kTolerance) << toy;
  }
}

TEST(ApParityTest, MatchingToys) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json toys = load_parity_json("ap.json")["matching"];
  for (const nlohmann::json& toy : toys) {
    ImageResult image;
    for (const nlohmann::json& gt : toy["gt"])
      image.labels.push_back({{gt[1], gt[2], gt[3], gt[4]}, gt[0]});
    for (const nlohmann::json& det : toy["det"])
      image.detections.push_back(
          {{det[0], det[1], det[2], det[3]}, det[4], det[5]});
    const auto correct = match_detections(image.detections, image.labels);
    for (size_t d = 0; d < correct.size(); ++d)
      for (size_t t = 0; t < kNumIouThresholds; ++t)
        EXPECT_EQ(correct[d][t], toy["correct"][d][t] == 1)
            << toy["name"] << " detection " << d << " threshold " << t;
  }
}

TEST(ApParityTest, CurvesAndConfusionMatrices) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const weights::Safetensors tensors = load_parity_tensors("ap.safetensors");
  for (const NamedSet& named : parity_sets(tensors)) {
    const nlohmann::json& expected = named.figures;
    const AveragePrecision ap = compute_average_precision(
        named.set.records(), named.set.labels_per_class);
    const size_t best = expected["best_confidence_index_of_1000"];
    ASSERT_EQ(ap.curves.size(), ap.classes.size());
    for (size_t i = 0; i < ap.curves.size(); ++i) {
      const ClassCurves& curves = ap.curves[i];
      EXPECT_EQ(curves.precision[best], ap.classes[i].precision);
      EXPECT_EQ(curves.recall[best], ap.classes[i].recall);
      EXPECT_NEAR(curves.f1()[best], expected["f1"][i], kTolerance);
      // The curve's area is computed by another rule than AP's, with ten times
      // the points.
      double area = 0;
      for (const double p : curves.precision_by_recall) area += p / 1000;
      EXPECT_NEAR(area, ap.classes[i].ap50(), 0.01) << named.name;
    }

    std::vector<ConfusionCount> counts;
    for (const ImageResult& image : named.set.images) {
      const auto more = count_confusions(image.detections, image.labels);
      counts.insert(counts.end(), more.begin(), more.end());
    }
    EXPECT_EQ(nlohmann::json(confusion_matrix(counts, expected["nc"])),
              expected["confusion_matrix"])
        << named.name;
  }
}

// 128 images of COCO with a real detector's detections.
EvaluationSet evaluator_set(const std::filesystem::path& folder) {
  const auto load = [&](const char* name) {
    std::printf("parity file used: evaluator/%s\n", name);
    return nlohmann::json::parse(std::ifstream(folder / name));
  };
  const nlohmann::json truth = load("gt_from_yolo_labels.json");
  EvaluationSet set;
  std::map<int64_t, size_t> image_of_id;
  std::map<int64_t, int32_t> class_of_id;
  for (const nlohmann::json& image : truth["images"])
    image_of_id.emplace(image["id"].get<int64_t>(), image_of_id.size());
  for (const nlohmann::json& category : truth["categories"])
    class_of_id.emplace(category["id"].get<int64_t>(),
                        static_cast<int32_t>(class_of_id.size()));
  set.images.resize(image_of_id.size());
  set.labels_per_class.resize(class_of_id.size());
  const auto corners = [](const nlohmann::json& bbox) {
    const double x = bbox[0], y = bbox[1], w = bbox[2], h = bbox[3];
    return Corners{static_cast<float>(x), static_cast<float>(y),
                   static_cast<float>(x + w), static_cast<float>(y + h)};
  };
  for (const nlohmann::json& annotation : truth["annotations"]) {
    const int32_t c = class_of_id.at(annotation["category_id"]);
    set.images[image_of_id.at(annotation["image_id"])].labels.push_back(
        {corners(annotation["bbox"]), c});
    ++set.labels_per_class[static_cast<size_t>(c)];
  }
  for (const nlohmann::json& detection : load("detections.json"))
    set.images[image_of_id.at(detection["image_id"])].detections.push_back(
        {corners(detection["bbox"]), detection["score"],
         class_of_id.at(detection["category_id"])});
  for (ImageResult& image : set.images)
    std::stable_sort(image.detections.begin(), image.detections.end(),
                     [](const Detection& a, const Detection& b) {
                       return a.confidence > b.confidence;
                     });
  return set;
}

TEST(ApParityTest, RealDetector) {
  const std::filesystem::path folder =
      std::filesystem::path(HEADROOM_SOURCE_DIR) / ".." / "shared" /
      "datasets" / "evaluator";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << folder << " is not here; it holds a detector's detections";
  const EvaluationSet set = evaluator_set(folder);
  const AveragePrecision ap =
      compute_average_precision(set.records(), set.labels_per_class);
  EXPECT_EQ(ap.classes.size(), 73u);
  EXPECT_NEAR(ap.map50, .5369927, 1e-5);
  EXPECT_NEAR(ap.map, .3504204, 1e-5);

  const CocoAveragePrecision coco = compute_coco_average_precision(
      set.coco_records(100), set.labels_per_class);
  EXPECT_NEAR(coco.map, .3514201, 1e-5);
  EXPECT_NEAR(coco.map50, .5391750, 1e-5);
  const CocoAveragePrecision coco_300 = compute_coco_average_precision(
      set.coco_records(300), set.labels_per_class);
  EXPECT_NEAR(coco_300.map, .3514324, 1e-5);
  EXPECT_NEAR(coco_300.map50, .5392043, 1e-5);
}

}  // namespace
}  // namespace headroom::metrics
