// Confusion matrix by YOLOv5's rule: the predicted class against the actual
// class, for detections above a confidence of 0.25.
//
// Per image, ignoring classes: each detection goes to the object that it
// overlaps most, with an IoU above 0.45. Each object takes the one of these
// detections that overlaps it most. An object without a detection counts as
// predicted background. A detection that no object took counts as actual
// background, but only in images in which some object took a detection, as in
// YOLOv5.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/metrics/detection.h"

namespace headroom::metrics {

inline constexpr float kConfusionConfidence = 0.25f;

// One count of the matrix; either side may be kBackground. Trivially copyable.
struct ConfusionCount {
  static constexpr int32_t kBackground = -1;
  int32_t predicted = kBackground, actual = kBackground;
  bool operator==(const ConfusionCount&) const = default;
};

// Counts for one image. REQUIRES: detections in descending confidence.
std::vector<ConfusionCount> count_confusions(
    std::span<const Detection> detections, std::span<const LabelledBox> labels);

// [predicted][actual]; the last row and column are the background.
std::vector<std::vector<int64_t>> confusion_matrix(
    std::span<const ConfusionCount> counts, int64_t num_classes);

}  // namespace headroom::metrics
