#include "worker/metrics/precision_curve.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "parallel/base/check.h"

namespace headroom::metrics {
namespace {

constexpr size_t kRecallPoints = 101;

}  // namespace

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
    HEADROOM_CHECK(c >= 0 && static_cast<size_t>(c) < num_classes,
                   "class " + std::to_string(c) + " of a detection, " +
                       std::to_string(num_classes) + " classes");
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

// y at `at`, for ascending x; of equal x the last counts.
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
