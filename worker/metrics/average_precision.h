// Average precision by YOLOv5's definition.
//
// In each image, detections are matched to labels at ten IoU thresholds, which
// gives one record per detection. The records of all images and ranks are
// pooled and reduced to precision and recall. Ranks exchange records and never
// averages, because AP of the whole is not the mean of the parts' AP.
//
//   matching   per threshold: each detection goes to the object of its class
//              that it overlaps most; each object takes the first such
//              detection; the others get no second choice
//   curve      sorted by confidence, recall = TP/labels, precision = TP/(TP+FP)
//   AP         envelope of precision with (0, 1) before and (1, 0) after the
//              curve, linear at 101 recalls, trapezoids; a perfect class has
//              .995
//   P, R       class means at the confidence where the smoothed mean F1 is
//              highest
//
// coco_evaluation.h has COCO's definition.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/metrics/detection.h"

namespace headroom::metrics {

inline constexpr size_t kNumIouThresholds = 10;

// 0.5, 0.55 ... 0.95, in float32.
const std::array<float, kNumIouThresholds>& iou_thresholds();

using Matched = std::array<bool, kNumIouThresholds>;

// `matched` in 2 bytes: bit t belongs to threshold t.
uint16_t bits_of(const Matched& matched);

struct DetectionRecord {
  float confidence = 0;
  int32_t class_index = 0;
  Matched correct = {};  // for each IoU threshold, whether it is correct
};

// Matches the detections of one image with its labels; boxes of both are in
// pixels of the same picture. REQUIRES: detections in descending confidence.
std::vector<Matched> match_detections(std::span<const Detection> detections,
                                      std::span<const LabelledBox> labels);
std::vector<DetectionRecord> match_records(
    std::span<const Detection> detections, std::span<const LabelledBox> labels);

struct ClassPrecision {
  int64_t class_index = 0;
  int64_t labels = 0;
  std::array<double, kNumIouThresholds> ap = {};
  double precision = 0;  // value at AveragePrecision::confidence
  double recall = 0;

  double ap50() const { return ap[0]; }
  double mean_ap() const;
};

// The curves of one class at IoU 0.5, for drawing.
inline constexpr size_t kNumCurvePoints = 1000;
struct ClassCurves {
  // Values at confidence i / 999. Beyond the highest confidence, precision is 1
  // and recall 0.
  std::vector<double> precision, recall;
  // The envelope at recall i / 999; 0 for a class without detections.
  std::vector<double> precision_by_recall;

  std::vector<double> f1() const;
};

// Means over the classes that have labels; zeros if no class has labels.
struct AveragePrecision {
  double map50 = 0;
  double map = 0;  // mean over classes and thresholds
  double precision = 0;
  double recall = 0;
  // The confidence at which precision and recall are read.
  double confidence = 0;
  std::vector<ClassPrecision> classes;  // classes with labels, ascending
  std::vector<ClassCurves> curves;      // one for each of `classes`

  // The value by which the best weights are chosen.
  double fitness() const { return 0.1 * map50 + 0.9 * map; }
};

// labels_per_class[c] is the number of labels of class c in all images.
// Detections of equal confidence are ranked in the order given, so pool the
// ranks' records in the order of the images. REQUIRES: every record's class is
// an index of labels_per_class.
AveragePrecision compute_average_precision(
    std::span<const DetectionRecord> records,
    std::span<const int64_t> labels_per_class);

// --- Parts that both definitions of average precision use

// Recall and precision after detections of one class's ranking, in its order.
struct PrecisionCurve {
  std::vector<double> recall;
  std::vector<double> precision;
};

// The places of the correct detections in the ranking of one class, from which
// its curves follow. Memory: 8 bytes for each threshold at which a detection is
// correct, so the labels bound it. Wrong detections are only counted.
class ClassRanking {
 public:
  // Adds the next detection in descending confidence. `correct`: bits_of().
  void add(uint16_t correct);
  int64_t size() const { return size_; }
  int64_t num_correct(size_t threshold_index) const {
    return std::ssize(hits_[threshold_index]);
  }
  // recall = TP/(labels + recall_epsilon), precision = TP/(TP + FP +
  // precision_epsilon). The definitions guard against 0/0 with different
  // epsilons. Of consecutive detections with equal recall the curve has only
  // the first and the last one: the envelope does not depend on the others.
  PrecisionCurve curve(size_t threshold_index, int64_t labels,
                       double recall_epsilon, double precision_epsilon) const;

 private:
  // Numbers of the correct detections, from 1.
  std::array<std::vector<int64_t>, kNumIouThresholds> hits_;
  int64_t size_ = 0;
};

// For each class, the positions of its records in descending confidence. Equal
// confidences keep their order.
std::vector<std::vector<size_t>> rank_by_class(
    std::span<const DetectionRecord> records, size_t num_classes);

// Interpolates y linearly at the position `at`, for ascending x. If several x
// are equal, the last one counts.
double interpolate(const std::vector<double>& x, const std::vector<double>& y,
                   double at);

// The curve with (0, 1) before and (1, 0) after it, where each precision is
// replaced by the largest of itself and all later ones.
PrecisionCurve envelope_of(const PrecisionCurve& curve);

// The area under envelope_of(curve), linear at 101 recalls, by trapezoids.
double area_under(const PrecisionCurve& curve);

// Replaces each value by the largest of itself and all later values.
void make_envelope(std::vector<double>& precision);

// Reads a value that changes with each detection of a ranking at confidence i /
// 999, linearly between detections.
class ValuesAtConfidences {
 public:
  // `above`: the value beyond the highest confidence.
  explicit ValuesAtConfidences(double above)
      : values_(kNumCurvePoints, above) {}
  // Adds the value after the next detection in descending confidence.
  void add(double confidence, double value);
  // For each i. REQUIRES: a detection was added.
  std::vector<double> finish();

 private:
  std::vector<double> values_;
  int64_t next_ = kNumCurvePoints - 1;  // the highest i without a value yet
  bool is_empty_ = true;
  double last_confidence_ = 0, last_value_ = 0;
};

// --- The same class by class, so that only one class's detections are needed
// at a time: for each class with labels, in ascending order, make an object,
// add its detections and call finish(); then call take_means().

class ClassAveragePrecision {
 public:
  ClassAveragePrecision(int64_t class_index, int64_t labels);
  // Adds the next detection in descending confidence. `correct`: bits_of().
  void add(float confidence, uint16_t correct);
  // Appends the class to result.classes and its curves to result.curves.
  void finish(AveragePrecision& result);

 private:
  ClassPrecision figures_;
  ClassRanking ranking_;
  ValuesAtConfidences precision_, recall_;
};

// Sets the means, and each class's precision and recall, from the curves.
void take_means(AveragePrecision& result);

}  // namespace headroom::metrics
