#include <algorithm>

#include "worker/metrics/average_precision.h"

namespace headroom::metrics {

const std::array<float, kNumIouThresholds>& iou_thresholds() {
  // Built from both ends, as a float32 linspace rounds it.
  static const std::array<float, kNumIouThresholds> thresholds = [] {
    std::array<float, kNumIouThresholds> values = {};
    const float step = (0.95f - 0.5f) / 9;
    for (size_t i = 0; i < kNumIouThresholds; ++i)
      values[i] = i < kNumIouThresholds / 2
                      ? 0.5f + step * static_cast<float>(i)
                      : 0.95f - step * static_cast<float>(9 - i);
    return values;
  }();
  return thresholds;
}

std::vector<Matched> match_detections(std::span<const Detection> detections,
                                      std::span<const LabelledBox> labels) {
  constexpr float kEpsilon = 1e-7f;
  std::vector<Matched> correct(detections.size());
  std::vector<Matched> is_taken(labels.size());
  for (size_t d = 0; d < detections.size(); ++d) {
    // The best object does not depend on the threshold, only whether it is
    // good enough does.
    size_t best = labels.size();
    float best_iou = 0;
    for (size_t l = 0; l < labels.size(); ++l) {
      if (labels[l].class_index != detections[d].class_index) continue;
      const float iou = corner_iou(labels[l].box, detections[d].box, kEpsilon);
      if (iou > best_iou) {
        best_iou = iou;
        best = l;
      }
    }
    if (best == labels.size()) continue;
    for (size_t t = 0; t < kNumIouThresholds; ++t) {
      if (best_iou < iou_thresholds()[t] || is_taken[best][t]) continue;
      is_taken[best][t] = true;
      correct[d][t] = true;
    }
  }
  return correct;
}

std::vector<DetectionRecord> match_records(
    std::span<const Detection> detections,
    std::span<const LabelledBox> labels) {
  const std::vector<Matched> correct = match_detections(detections, labels);
  std::vector<DetectionRecord> records;
  records.reserve(detections.size());
  for (size_t d = 0; d < detections.size(); ++d)
    records.push_back(
        {detections[d].confidence, detections[d].class_index, correct[d]});
  return records;
}

}  // namespace headroom::metrics
