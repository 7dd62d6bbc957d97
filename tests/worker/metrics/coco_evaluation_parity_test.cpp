// The twelve figures equal pycocotools' for random sets, with and without
// crowds.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/parity.h"
#include "worker/metrics/coco_evaluation.h"

namespace headroom::metrics {
namespace {

constexpr double kTolerance = 1e-12;

// Boxes have their corners in double, and the area w * h. With `crowds`, every
// ninth object is a crowd.
std::vector<CocoScene> scenes_of(const weights::Safetensors& tensors,
                                 const std::string& name, int64_t num_images,
                                 bool crowds) {
  std::vector<CocoScene> scenes(static_cast<size_t>(num_images));
  const at::Tensor objects = tensors.at(name + ".gt").to(at::kDouble);
  const auto object = objects.accessor<double, 2>();
  for (int64_t i = 0; i < objects.size(0); ++i) {
    const auto& o = object[i];
    const double w = o[4] - o[2], h = o[5] - o[3];
    scenes[static_cast<size_t>(o[0])].objects.push_back(
        {o[2], o[3], w, h, w * h, static_cast<int32_t>(o[1]),
         crowds && (i + 1) % 9 == 0});
  }
  const at::Tensor detections = tensors.at(name + ".det").to(at::kDouble);
  const auto detection = detections.accessor<double, 2>();
  for (int64_t i = 0; i < detections.size(0); ++i) {
    const auto& d = detection[i];
    scenes[static_cast<size_t>(d[0])].detections.push_back(
        {d[1], d[2], d[3] - d[1], d[4] - d[2], d[5],
         static_cast<int32_t>(d[6])});
  }
  return scenes;
}

TEST(CocoEvaluationParity, TwelveFiguresAndEveryClass) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const weights::Safetensors tensors = load_parity_tensors("ap.safetensors");
  const nlohmann::json sets = load_parity_json("ap.json")["sets"];
  ASSERT_EQ(sets.size(), 6u);
  for (const auto& [name, figures] : sets.items()) {
    for (const bool crowds : {false, true}) {
      SCOPED_TRACE(name + (crowds ? " with crowds" : ""));
      const nlohmann::json& expected =
          figures[crowds ? "coco_with_crowd_every_9th_annotation" : "coco"];
      const int64_t classes = figures["nc"];
      const CocoEvaluation found = evaluate_coco(
          scenes_of(tensors, name, figures["images"], crowds), classes);
      const auto stats = found.stats();
      ASSERT_EQ(expected["stats"].size(), stats.size());
      for (size_t i = 0; i < stats.size(); ++i)
        EXPECT_NEAR(stats[i], expected["stats"][i].get<double>(), kTolerance)
            << "figure " << i;
      for (size_t c = 0; c < static_cast<size_t>(classes); ++c) {
        EXPECT_NEAR(found.classes[c][0].ap,
                    expected["ap_per_class"][c].get<double>(), kTolerance);
        EXPECT_NEAR(found.classes[c][0].ap50,
                    expected["ap50_per_class"][c].get<double>(), kTolerance);
      }
    }
  }
}

}  // namespace
}  // namespace headroom::metrics
