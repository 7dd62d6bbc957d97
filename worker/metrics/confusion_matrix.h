// Confusion matrix by YOLOv5's rule: what detections above a confidence of 0.25
// are, and what they were taken for.
//
// Per image, whatever the classes: each detection turns to the object that it
// overlaps most, by an IoU above 0.45; each object takes the one of them that
// overlaps it most. Objects that nobody took were seen as background, and
// detections that took none saw background as something; those of an image in
// which no object was taken are not counted, as in YOLOv5.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/metrics/detection.h"

namespace headroom::metrics {

inline constexpr float kConfusionConfidence = 0.25f;

// One count of the matrix; kBackground for either. Trivially copyable.
struct ConfusionCount {
  static constexpr int32_t kBackground = -1;
  int32_t predicted = kBackground, actual = kBackground;
  bool operator==(const ConfusionCount&) const = default;
};

// One image. REQUIRES: detections in descending confidence.
std::vector<ConfusionCount> count_confusions(
    std::span<const Detection> detections, std::span<const LabelledBox> labels);

// [predicted][actual], the last of each being the background.
std::vector<std::vector<int64_t>> confusion_matrix(
    std::span<const ConfusionCount> counts, int64_t num_classes);

}  // namespace headroom::metrics
