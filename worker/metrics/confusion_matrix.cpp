#include "worker/metrics/confusion_matrix.h"

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::metrics {
namespace {

constexpr float kIou = 0.45f;
constexpr float kIouEpsilon = 1e-7f;

// The detection that an object takes.
struct Taken {
  size_t detection = 0;
  float iou = 0;  // 0 if no detection matches the object
};

// For each label, the detection that is assigned to it and overlaps it most. If
// overlaps are equal, the first label or detection is taken.
std::vector<Taken> take(std::span<const Detection> detections,
                        std::span<const LabelledBox> labels) {
  std::vector<Taken> taken(labels.size());
  for (size_t d = 0; d < detections.size(); ++d) {
    size_t best = labels.size();
    float best_iou = kIou;
    for (size_t l = 0; l < labels.size(); ++l) {
      const float iou =
          corner_iou(labels[l].box, detections[d].box, kIouEpsilon);
      if (iou <= best_iou) continue;
      best_iou = iou;
      best = l;
    }
    if (best < labels.size() && best_iou > taken[best].iou) {
      taken[best] = {d, best_iou};
    }
  }
  return taken;
}

}  // namespace

std::vector<ConfusionCount> count_confusions(
    std::span<const Detection> detections,
    std::span<const LabelledBox> labels) {
  size_t above = 0;
  while (above < detections.size() &&
         detections[above].confidence > kConfusionConfidence) {
    ++above;
  }
  detections = detections.first(above);
  std::vector<ConfusionCount> counts;
  std::vector<bool> is_taken(detections.size());
  bool is_any_taken = false;
  const std::vector<Taken> taken = take(detections, labels);
  for (size_t l = 0; l < labels.size(); ++l) {
    ConfusionCount& count = counts.emplace_back();
    count.actual = labels[l].class_index;
    if (taken[l].iou == 0) continue;
    count.predicted = detections[taken[l].detection].class_index;
    is_taken[taken[l].detection] = true;
    is_any_taken = true;
  }
  for (size_t d = 0; is_any_taken && d < detections.size(); ++d) {
    if (is_taken[d]) continue;
    counts.push_back({detections[d].class_index, ConfusionCount::kBackground});
  }
  return counts;
}

std::vector<std::vector<int64_t>> confusion_matrix(
    std::span<const ConfusionCount> counts, int64_t num_classes) {
  const auto background = static_cast<size_t>(num_classes);
  std::vector<std::vector<int64_t>> matrix(
      background + 1, std::vector<int64_t>(background + 1));
  const auto place = [&](int32_t c) {
    if (c == ConfusionCount::kBackground) return background;
    HEADROOM_CHECK(
        c >= 0 && c < num_classes,
        cat("class ", c, " of a detection, ", num_classes, " classes"));
    return static_cast<size_t>(c);
  };
  for (const ConfusionCount& count : counts) {
    ++matrix[place(count.predicted)][place(count.actual)];
  }
  return matrix;
}

}  // namespace headroom::metrics
