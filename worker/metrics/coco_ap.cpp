#include "worker/metrics/coco_ap.h"

#include <algorithm>
#include <limits>
#include <map>

namespace headroom::metrics {
namespace {

constexpr size_t kNumRecalls = 101;

double coco_iou(const Corners& a, const Corners& b) {
  const double w = static_cast<double>(std::min(a.x2, b.x2)) -
                   static_cast<double>(std::max(a.x1, b.x1));
  const double h = static_cast<double>(std::min(a.y2, b.y2)) -
                   static_cast<double>(std::max(a.y1, b.y1));
  if (w <= 0 || h <= 0) return 0;
  const auto area = [](const Corners& c) {
    return (static_cast<double>(c.x2) - static_cast<double>(c.x1)) *
           (static_cast<double>(c.y2) - static_cast<double>(c.y1));
  };
  return w * h / (area(a) + area(b) - w * h);
}

// The free object of the class that overlaps most, at least `threshold`; of
// equal ones the last. labels.size() if there is none.
size_t best_free_label(const std::vector<double>& ious,
                       const std::vector<Matched>& is_taken, size_t t) {
  size_t best = ious.size();
  double best_iou = std::min(coco_threshold(t), 1 - 1e-10);
  for (size_t l = 0; l < ious.size(); ++l) {
    if (is_taken[l][t] || ious[l] < best_iou) continue;
    best_iou = ious[l];
    best = l;
  }
  return best;
}

}  // namespace

double coco_threshold(size_t i) {
  return i + 1 == kNumIouThresholds
             ? 0.95
             : 0.5 + static_cast<double>(i) * ((0.95 - 0.5) / 9);
}

double coco_step_average(const PrecisionCurve& curve) {
  std::vector<double> envelope = curve.precision;
  make_envelope(envelope);
  double sum = 0;
  for (size_t i = 0; i < kNumRecalls; ++i) {
    const double recall =
        i + 1 == kNumRecalls ? 1.0 : static_cast<double>(i) * 0.01;
    const auto reached =
        std::lower_bound(curve.recall.begin(), curve.recall.end(), recall);
    if (reached == curve.recall.end()) break;
    sum += envelope[static_cast<size_t>(reached - curve.recall.begin())];
  }
  return sum / kNumRecalls;
}

std::vector<DetectionRecord> coco_match_records(
    std::span<const Detection> detections, std::span<const LabelledBox> labels,
    int64_t max_detections) {
  std::vector<Matched> is_taken(labels.size());
  std::map<int32_t, int64_t> seen_per_class;
  std::vector<DetectionRecord> records;
  for (const Detection& detection : detections) {
    if (++seen_per_class[detection.class_index] > max_detections) continue;
    DetectionRecord& record = records.emplace_back();
    record.confidence = detection.confidence;
    record.class_index = detection.class_index;
    std::vector<double> ious(labels.size(), 0.0);
    for (size_t l = 0; l < labels.size(); ++l)
      if (labels[l].class_index == detection.class_index)
        ious[l] = coco_iou(detection.box, labels[l].box);
    for (size_t t = 0; t < kNumIouThresholds; ++t) {
      const size_t best = best_free_label(ious, is_taken, t);
      if (best == labels.size()) continue;
      is_taken[best][t] = true;
      record.correct[t] = true;
    }
  }
  return records;
}

CocoAveragePrecision compute_coco_average_precision(
    std::span<const DetectionRecord> records,
    std::span<const int64_t> labels_per_class) {
  const auto ranking = rank_by_class(records, labels_per_class.size());
  CocoAveragePrecision result;
  for (size_t c = 0; c < labels_per_class.size(); ++c) {
    if (labels_per_class[c] == 0) continue;
    CocoClassPrecision& figures = result.classes.emplace_back();
    figures.class_index = static_cast<int64_t>(c);
    for (size_t t = 0; t < kNumIouThresholds; ++t) {
      const double ap = coco_step_average(
          precision_curve(records, ranking[c], t, labels_per_class[c], 0,
                          std::numeric_limits<double>::epsilon()));
      if (t == 0) figures.ap50 = ap;
      figures.ap += ap / kNumIouThresholds;
    }
  }
  const auto num_classes = static_cast<double>(result.classes.size());
  for (const CocoClassPrecision& figures : result.classes) {
    result.map50 += figures.ap50 / num_classes;
    result.map += figures.ap / num_classes;
  }
  return result;
}

}  // namespace headroom::metrics
