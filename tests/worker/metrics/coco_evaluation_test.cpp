#include "worker/metrics/coco_evaluation.h"

#include <gtest/gtest.h>

namespace headroom::metrics {
namespace {

CocoObject object(double x, double y, double w, double h, bool crowd = false) {
  return {x, y, w, h, w * h, 0, crowd};
}
CocoDetection detection(double x, double y, double w, double h, double score) {
  return {x, y, w, h, score, 0};
}

TEST(CocoEvaluation, DetectionsInACrowdAreIgnored) {
  CocoScene scene;
  scene.objects = {object(0, 0, 100, 100), object(200, 0, 200, 100, true)};
  scene.detections = {detection(210, 10, 20, 20, .9),
                      detection(250, 10, 20, 20, .8),
                      detection(0, 0, 100, 100, .7)};
  const CocoEvaluation with = evaluate_coco({&scene, 1}, 1);
  EXPECT_DOUBLE_EQ(with.by_area[0].ap, 1);
  EXPECT_EQ(with.by_area[0].objects, 1);
  scene.objects.pop_back();
  const CocoEvaluation without = evaluate_coco({&scene, 1}, 1);
  EXPECT_NEAR(without.by_area[0].ap, 1. / 3, 1e-12);
}

TEST(CocoEvaluation, ATakenObjectLeavesTheSecondBest) {
  CocoScene scene;
  scene.objects = {object(0, 0, 100, 100), object(20, 0, 100, 100)};
  scene.detections = {detection(0, 0, 100, 100, .9),
                      detection(8, 0, 100, 100, .8)};
  const CocoEvaluation result = evaluate_coco({&scene, 1}, 1);
  EXPECT_DOUBLE_EQ(result.by_area[0].ap50, 1);
  EXPECT_NEAR(result.by_area[0].ap, .801980, 1e-6);
}

TEST(CocoEvaluation, SizesJudgeTheirOwnObjects) {
  CocoScene scene;
  scene.objects = {object(0, 0, 20, 20), object(100, 100, 50, 50)};
  scene.detections = {detection(0, 0, 20, 20, .9)};
  const CocoEvaluation result = evaluate_coco({&scene, 1}, 1);
  const auto stats = result.stats();
  EXPECT_DOUBLE_EQ(stats[3], 1);   // small: found
  EXPECT_DOUBLE_EQ(stats[4], 0);   // medium: missed
  EXPECT_DOUBLE_EQ(stats[5], -1);  // large: no object
  EXPECT_NEAR(stats[0], .504950, 1e-6);
  EXPECT_DOUBLE_EQ(stats[8], .5);
}

TEST(CocoEvaluation, OnlyTheBestDetectionsOfAnImageCount) {
  CocoScene scene;
  scene.objects = {object(0, 0, 100, 100)};
  for (int i = 0; i < 150; ++i) {
    scene.detections.push_back(detection(300, 300, 10, 10, .9 - i * 1e-3));
  }
  scene.detections.push_back(detection(0, 0, 100, 100, .1));
  EXPECT_DOUBLE_EQ(evaluate_coco({&scene, 1}, 1).by_area[0].ap50, 0);
  EXPECT_GT(evaluate_coco({&scene, 1}, 1, 300).by_area[0].ap50, 0);
}

TEST(CocoEvaluation, ClassesWithoutObjectsAreNoPartOfTheMean) {
  CocoScene scene;
  scene.objects = {object(0, 0, 100, 100)};
  scene.detections = {detection(0, 0, 100, 100, .9)};
  scene.detections.push_back(scene.detections[0]);
  scene.detections.back().class_index = 2;
  const CocoEvaluation result = evaluate_coco({&scene, 1}, 3);
  EXPECT_DOUBLE_EQ(result.by_area[0].ap, 1);
  EXPECT_DOUBLE_EQ(result.classes[2][0].ap, -1);
  EXPECT_DOUBLE_EQ(evaluate_coco({}, 3).by_area[0].ap, -1);
}

}  // namespace
}  // namespace headroom::metrics
