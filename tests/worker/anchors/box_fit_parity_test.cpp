// The recall, fitness and counts of the reference's anchors equal those that
// the reference computes for the same labels.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "configs/layers/model_table.h"
#include "tests/support/parity.h"
#include "worker/anchors/anchor_choice.h"
#include "worker/anchors/box_fit.h"

namespace headroom::anchors {
namespace {

std::vector<BoxSize> boxes_of(const nlohmann::json& json, int64_t side) {
  std::vector<BoxSize> boxes;
  for (size_t i = 0; i < json["shapes_wh"].size(); ++i) {
    const auto shape = json["shapes_wh"][i].get<std::vector<double>>();
    const codecs::ImageSize image{static_cast<int32_t>(shape[1]),
                                  static_cast<int32_t>(shape[0])};
    for (const auto& wh : json["labels_wh"][i]) {
      const labels::BoxLabel label{0, 0.5f, 0.5f, wh[0].get<float>(),
                                   wh[1].get<float>()};
      boxes.push_back(size_in_input(label, image, side, side, 1));
    }
  }
  return boxes;
}

TEST(BoxFitParity, RecallFitnessAndCounts) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json json = load_parity_json("autoanchor.json");
  std::vector<Anchor> anchors;
  for (const auto& level : layers::load_model_table("yolov5n").anchors) {
    anchors.insert(anchors.end(), level.begin(), level.end());
  }
  ASSERT_EQ(json["cases"].size(), 9u);
  for (const auto& wanted : json["cases"]) {
    ASSERT_EQ(wanted["anchors"], "P5");
    const std::vector<BoxSize> boxes =
        boxes_of(json, wanted["imgsz"].get<int64_t>());
    SCOPED_TRACE(wanted.dump());
    // The stored means are float32.
    constexpr double kTolerance = 1e-6;
    for (const int64_t threads : {1, 3}) {
      const AnchorFit fit =
          fit_of(anchors, boxes, wanted["thr"].get<double>(), threads);
      EXPECT_NEAR(fit.best_possible_recall, wanted["bpr"].get<double>(),
                  kTolerance);
      EXPECT_NEAR(fit.anchors_above_threshold,
                  wanted["anchors_above_threshold"].get<double>(), kTolerance);
      EXPECT_NEAR(fit.fitness, wanted["fitness"].get<double>(), kTolerance);
    }
    EXPECT_EQ(searched_boxes(boxes).size(), wanted["n_kept_2px"]);
    EXPECT_EQ(std::count_if(boxes.begin(), boxes.end(), is_tiny),
              wanted["n_below_3px"]);
  }
}

}  // namespace
}  // namespace headroom::anchors
