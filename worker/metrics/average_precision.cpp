#include "worker/metrics/average_precision.h"

#include <algorithm>
#include <numeric>

#include "worker/metrics/precision_curve.h"

namespace headroom::metrics {
namespace {

constexpr size_t kNumConfidences = kNumCurvePoints;
constexpr size_t kSmoothing = 101;  // confidences under the box filter
constexpr double kEpsilon = 1e-16;

using ConfidenceCurve = std::vector<double>;  // over kNumConfidences

double confidence_at(size_t i) {
  return static_cast<double>(i) / (kNumConfidences - 1);
}

// Of the envelope, at even recalls.
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

// A figure along the ranking, read at even confidences; `above` holds beyond
// the highest confidence of the ranking.
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

// Position of the first maximum of the box-filtered curve; its ends repeat.
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

  // The sum over the classes has its maximum where their mean has.
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

}  // namespace headroom::metrics
