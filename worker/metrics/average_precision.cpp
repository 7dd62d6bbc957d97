#include "worker/metrics/average_precision.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::metrics {
namespace {

constexpr size_t kNumConfidences = kNumCurvePoints;
constexpr size_t kSmoothing = 101;  // width of the box filter, in confidences
constexpr double kEpsilon = 1e-16;

using ConfidenceCurve = std::vector<double>;  // kNumConfidences values

double confidence_at(size_t i) {
  return static_cast<double>(i) / (kNumConfidences - 1);
}

// The precision of the envelope at evenly spaced recalls.
std::vector<double> by_recall(const PrecisionCurve& curve) {
  const PrecisionCurve envelope = envelope_of(curve);
  std::vector<double> values;
  values.reserve(kNumCurvePoints);
  for (size_t i = 0; i < kNumCurvePoints; ++i) {
    const double at = static_cast<double>(i) / (kNumCurvePoints - 1);
    values.push_back(interpolate(envelope.recall, envelope.precision, at));
  }
  return values;
}

// Reads `figure`, which has one value per ranked detection, at evenly spaced
// confidences. `above` is the value beyond the highest confidence.
ConfidenceCurve by_confidence(std::span<const DetectionRecord> records,
                              const std::vector<size_t>& ranking,
                              const std::vector<double>& figure, double above) {
  std::vector<double> negated;
  negated.reserve(ranking.size());
  for (const size_t i : ranking)
    negated.push_back(-static_cast<double>(records[i].confidence));
  ConfidenceCurve curve(kNumConfidences, above);
  for (size_t i = 0; i < kNumConfidences; ++i) {
    const double at = -confidence_at(i);
    if (at >= negated.front()) curve[i] = interpolate(negated, figure, at);
  }
  return curve;
}

// The index of the first maximum of the box-filtered curve. Beyond its ends the
// curve repeats its end values.
size_t smoothed_maximum(const ConfidenceCurve& curve) {
  const auto half = static_cast<int64_t>(kSmoothing / 2);
  size_t best = 0;
  double best_sum = -1;
  for (int64_t i = 0; i < static_cast<int64_t>(kNumConfidences); ++i) {
    double sum = 0;
    for (int64_t j = i - half; j <= i + half; ++j)
      sum += curve[static_cast<size_t>(
          std::clamp<int64_t>(j, 0, kNumConfidences - 1))];
    if (sum > best_sum) {
      best_sum = sum;
      best = static_cast<size_t>(i);
    }
  }
  return best;
}

constexpr size_t kRecallPoints = 101;

}  // namespace

double ClassPrecision::mean_ap() const {
  return std::accumulate(ap.begin(), ap.end(), 0.0) / kNumIouThresholds;
}

std::vector<double> ClassCurves::f1() const {
  std::vector<double> values(precision.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double p = precision[i], r = recall[i];
    values[i] = 2 * p * r / (p + r + kEpsilon);
  }
  return values;
}

AveragePrecision compute_average_precision(
    std::span<const DetectionRecord> records,
    std::span<const int64_t> labels_per_class) {
  const auto ranking = rank_by_class(records, labels_per_class.size());
  AveragePrecision result;
  ConfidenceCurve f1_sum(kNumConfidences, 0.0);
  for (size_t c = 0; c < labels_per_class.size(); ++c) {
    if (labels_per_class[c] == 0) continue;
    ClassPrecision& figures = result.classes.emplace_back();
    figures.class_index = static_cast<int64_t>(c);
    figures.labels = labels_per_class[c];
    ClassCurves& curves = result.curves.emplace_back();
    curves.precision.resize(kNumConfidences);
    curves.recall.resize(kNumConfidences);
    curves.precision_by_recall.resize(kNumCurvePoints);
    if (ranking[c].empty()) continue;

    for (size_t t = 0; t < kNumIouThresholds; ++t) {
      const PrecisionCurve curve = precision_curve(
          records, ranking[c], t, labels_per_class[c], kEpsilon, 0);
      figures.ap[t] = area_under(curve);
      if (t != 0) continue;
      curves.precision = by_confidence(records, ranking[c], curve.precision, 1);
      curves.recall = by_confidence(records, ranking[c], curve.recall, 0);
      curves.precision_by_recall = by_recall(curve);
    }
    const std::vector<double> f1 = curves.f1();
    for (size_t i = 0; i < kNumConfidences; ++i) f1_sum[i] += f1[i];
  }
  if (result.classes.empty()) return result;

  // The sum over classes has its maximum at the same place as their mean.
  const size_t best = smoothed_maximum(f1_sum);
  const auto num_classes = static_cast<double>(result.classes.size());
  result.confidence = confidence_at(best);
  for (size_t i = 0; i < result.classes.size(); ++i) {
    ClassPrecision& figures = result.classes[i];
    figures.precision = result.curves[i].precision[best];
    figures.recall = result.curves[i].recall[best];
    result.map50 += figures.ap50() / num_classes;
    result.map += figures.mean_ap() / num_classes;
    result.precision += figures.precision / num_classes;
    result.recall += figures.recall / num_classes;
  }
  return result;
}

const std::array<float, kNumIouThresholds>& iou_thresholds() {
  // The values are computed from both ends, because that is how a float32
  // linspace rounds.
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
    // The best object is the same for all thresholds; a threshold only decides
    // whether its IoU is high enough.
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

std::vector<std::vector<size_t>> rank_by_class(
    std::span<const DetectionRecord> records, size_t num_classes) {
  std::vector<size_t> order(records.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return records[a].confidence > records[b].confidence;
  });
  std::vector<std::vector<size_t>> ranking(num_classes);
  for (const size_t i : order) {
    const int32_t c = records[i].class_index;
    HEADROOM_CHECK(
        c >= 0 && static_cast<size_t>(c) < num_classes,
        cat("class ", c, " of a detection, ", num_classes, " classes"));
    ranking[static_cast<size_t>(c)].push_back(i);
  }
  return ranking;
}

PrecisionCurve precision_curve(std::span<const DetectionRecord> records,
                               const std::vector<size_t>& ranking,
                               size_t threshold_index, int64_t labels,
                               double recall_epsilon,
                               double precision_epsilon) {
  PrecisionCurve curve;
  curve.recall.reserve(ranking.size());
  curve.precision.reserve(ranking.size());
  const double total = static_cast<double>(labels) + recall_epsilon;
  double true_positives = 0, seen = 0;
  for (const size_t i : ranking) {
    true_positives += records[i].correct[threshold_index] ? 1 : 0;
    seen += 1;
    curve.recall.push_back(true_positives / total);
    curve.precision.push_back(true_positives / (seen + precision_epsilon));
  }
  return curve;
}

void make_envelope(std::vector<double>& precision) {
  for (size_t i = precision.size(); i-- > 1;)
    precision[i - 1] = std::max(precision[i - 1], precision[i]);
}

double interpolate(const std::vector<double>& x, const std::vector<double>& y,
                   double at) {
  const auto above = std::upper_bound(x.begin(), x.end(), at);
  if (above == x.end()) return y.back();
  if (above == x.begin()) return y.front();
  const auto i = static_cast<size_t>(above - x.begin()) - 1;
  return (y[i + 1] - y[i]) / (x[i + 1] - x[i]) * (at - x[i]) + y[i];
}

PrecisionCurve envelope_of(const PrecisionCurve& curve) {
  PrecisionCurve all{{0}, {1}};
  all.recall.insert(all.recall.end(), curve.recall.begin(), curve.recall.end());
  all.precision.insert(all.precision.end(), curve.precision.begin(),
                       curve.precision.end());
  all.recall.push_back(1);
  all.precision.push_back(0);
  make_envelope(all.precision);
  return all;
}

double area_under(const PrecisionCurve& curve) {
  const PrecisionCurve envelope = envelope_of(curve);
  double area = 0;
  double last = interpolate(envelope.recall, envelope.precision, 0);
  for (size_t i = 1; i < kRecallPoints; ++i) {
    const double at = static_cast<double>(i) / (kRecallPoints - 1);
    const double value = interpolate(envelope.recall, envelope.precision, at);
    area += (value + last) / 2 / (kRecallPoints - 1);
    last = value;
  }
  return area;
}

}  // namespace headroom::metrics
