// The scores of a detector's result file equal the figures of the references.
#include "worker/validation/detection_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "parallel/base/check.h"
#include "tests/worker/data/data_files.h"

namespace headroom::validation {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr double kFourDecimals = 5e-5;

TEST(DetectionScores, EqualTheReferencesToFourDecimals) {
  const fs::path folder = shared_data_set("evaluator");
  if (!fs::exists(folder)) GTEST_SKIP() << kSharedDataMissing;
  std::printf("parity file used: evaluator/metrics.json\n");
  const auto expected =
      nlohmann::json::parse(std::ifstream(folder / "metrics.json"));
  const DetectionScores scores = score_detections(
      folder / "detections.json", folder / "gt_from_yolo_labels.json");
  EXPECT_EQ(scores.images, 128);
  EXPECT_EQ(scores.objects, 898);
  EXPECT_EQ(scores.detections, 30352);
  // The output of --json, under the names of the reference.
  const auto json = nlohmann::json::parse(scores_json(scores));
  for (const auto& [group, figures] : expected.items()) {
    for (const auto& [name, value] : figures.items()) {
      const auto& mine = figures.is_array()
                             ? json.at(group).at(std::stoul(name))
                             : json.at(group).at(name);
      EXPECT_NEAR(mine.get<double>(), value.get<double>(), kFourDecimals)
          << group << " " << name;
    }
  }
  EXPECT_EQ(json["coco_stats_maxdets100"].size(), 12u);
  EXPECT_EQ(json["per_class"].size(), 73u);
  EXPECT_THAT(scores_text(scores), HasSubstr("area=   all"));
}

constexpr const char* kTruth =
    R"({"images": [{"id": 7}, {"id": 9}],
"categories": [{"id": 5, "name": "car"}, {"id": 3, "name": "bus"}],
"annotations": [
 {"image_id": 7, "category_id": 5, "bbox": [0, 0, 10, 10],
  "segmentation": [[1, 2, 3, 4]]},
 {"image_id": 9, "category_id": 3, "bbox": [5, 5, 20, 20.5], "iscrowd": 1,
  "segmentation": {"counts": [1, 2], "size": [9, 9]}}]})";

class ScoreFiles : public ::testing::Test {
 protected:
  std::string refusal(const std::string& detections,
                      const std::string& truth = kTruth) {
    const fs::path d = folder_.write("d.json", detections);
    const fs::path g = folder_.write("g.json", truth);
    try {
      score_detections(d, g);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kData);
      return error.what();
    }
    return "not refused";
  }
  TemporaryFolder folder_;
};

TEST_F(ScoreFiles, CategoriesAreTakenByRisingId) {
  const fs::path d = folder_.write(
      "d.json",
      R"([{"image_id": 7, "category_id": 5, "bbox": [0,0,10,10], "score": 1}])");
  const DetectionScores scores =
      score_detections(d, folder_.write("g.json", kTruth));
  EXPECT_EQ(scores.class_names, (std::vector<std::string>{"bus", "car"}));
  EXPECT_EQ(scores.crowds, 1);
  EXPECT_DOUBLE_EQ(scores.coco.by_area[0].ap, 1);
  EXPECT_NEAR(scores.yolov5.map50, .995, 1e-12);
}

TEST_F(ScoreFiles, FaultsAreNamedByLine) {
  EXPECT_THAT(refusal("[\n{\"image_id\": 8, \"category_id\": 5, \"bbox\": "
                      "[0,0,1,1], \"score\": 1}]"),
              HasSubstr("d.json:2: image 8 is not among"));
  EXPECT_THAT(refusal(R"([{"image_id": 7, "category_id": 4, "bbox": [0,0,1,1],
              "score": 1}])"),
              HasSubstr("d.json:1: category 4 is not among"));
  EXPECT_THAT(refusal(R"([{"image_id": 7, "category_id": 5, "score": 1}])"),
              HasSubstr("no bbox of 4 numbers"));
  EXPECT_THAT(refusal("[\n\n{\"image_id\": NaN}]"),
              HasSubstr("d.json:3: a detection has no score"));
  EXPECT_THAT(refusal("{}"), HasSubstr("no list of detections"));
  EXPECT_THAT(refusal("[]", "[]"), HasSubstr("a list, not annotations"));
  EXPECT_THAT(refusal("[]", R"({"images": [{"id": 1, "file_name": "a.jpg"},
                                           {"id": 1, "file_name": "b.jpg"}],
                                "categories": []})"),
              HasSubstr("image 1 is there twice"));
  EXPECT_THAT(refusal(""), HasSubstr("d.json"));
}

}  // namespace
}  // namespace headroom::validation
