#include "worker/metrics/average_precision.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <utility>

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
  for (size_t c = 0; c < labels_per_class.size(); ++c) {
    if (labels_per_class[c] == 0) continue;
    ClassAveragePrecision one(static_cast<int64_t>(c), labels_per_class[c]);
    for (const size_t i : ranking[c]) {
      one.add(records[i].confidence, bits_of(records[i].correct));
    }
    one.finish(result);
  }
  take_means(result);
  return result;
}

ClassAveragePrecision::ClassAveragePrecision(int64_t class_index,
                                             int64_t labels)
    : precision_(1), recall_(0) {
  figures_.class_index = class_index;
  figures_.labels = labels;
}

void ClassAveragePrecision::add(float confidence, uint16_t correct) {
  ranking_.add(correct);
  const auto hits = static_cast<double>(ranking_.num_correct(0));
  recall_.add(confidence,
              hits / (static_cast<double>(figures_.labels) + kEpsilon));
  precision_.add(confidence, hits / static_cast<double>(ranking_.size()));
}

void ClassAveragePrecision::finish(AveragePrecision& result) {
  ClassCurves& curves = result.curves.emplace_back();
  if (ranking_.size() == 0) {
    curves.precision.resize(kNumConfidences);
    curves.recall.resize(kNumConfidences);
    curves.precision_by_recall.resize(kNumCurvePoints);
  } else {
    curves.precision = precision_.finish();
    curves.recall = recall_.finish();
    for (size_t t = 0; t < kNumIouThresholds; ++t) {
      const PrecisionCurve curve =
          ranking_.curve(t, figures_.labels, kEpsilon, 0);
      figures_.ap[t] = area_under(curve);
      if (t == 0) curves.precision_by_recall = by_recall(curve);
    }
  }
  result.classes.push_back(figures_);
}

void take_means(AveragePrecision& result) {
  if (result.classes.empty()) return;
  ConfidenceCurve f1_sum(kNumConfidences, 0.0);
  for (const ClassCurves& curves : result.curves) {
    const std::vector<double> f1 = curves.f1();
    for (size_t i = 0; i < kNumConfidences; ++i) f1_sum[i] += f1[i];
  }
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
}

void ValuesAtConfidences::add(double confidence, double value) {
  for (; next_ >= 0 && confidence_at(static_cast<size_t>(next_)) > confidence;
       --next_) {
    if (is_empty_) continue;
    const double x = -last_confidence_;
    const double at = -confidence_at(static_cast<size_t>(next_));
    values_[static_cast<size_t>(next_)] =
        (value - last_value_) / (-confidence - x) * (at - x) + last_value_;
  }
  is_empty_ = false;
  last_confidence_ = confidence;
  last_value_ = value;
}

std::vector<double> ValuesAtConfidences::finish() {
  for (; next_ >= 0; --next_) {
    values_[static_cast<size_t>(next_)] = last_value_;
  }
  return std::move(values_);
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

uint16_t bits_of(const Matched& matched) {
  unsigned bits = 0;
  for (size_t t = 0; t < matched.size(); ++t) {
    if (matched[t]) bits |= 1U << t;
  }
  return static_cast<uint16_t>(bits);
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

void ClassRanking::add(uint16_t correct) {
  ++size_;
  for (unsigned left = correct; left != 0; left &= left - 1) {
    hits_.at(static_cast<size_t>(std::countr_zero(left))).push_back(size_);
  }
}

PrecisionCurve ClassRanking::curve(size_t threshold_index, int64_t labels,
                                   double recall_epsilon,
                                   double precision_epsilon) const {
  const std::vector<int64_t>& hits = hits_[threshold_index];
  const double total = static_cast<double>(labels) + recall_epsilon;
  PrecisionCurve curve;
  const auto add = [&](size_t true_positives, int64_t seen) {
    const auto correct = static_cast<double>(true_positives);
    curve.recall.push_back(correct / total);
    curve.precision.push_back(correct /
                              (static_cast<double>(seen) + precision_epsilon));
  };
  for (size_t k = 0; k <= hits.size(); ++k) {
    const int64_t first = k == 0 ? 1 : hits[k - 1];
    const int64_t last = k == hits.size() ? size_ : hits[k] - 1;
    if (first > last) continue;
    add(k, first);
    if (last > first) add(k, last);
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
