// Average precision by YOLOv5's definition.
//
// Per image, detections are matched to labels at ten IoU thresholds; that
// leaves one record per detection. Records of all images and ranks are pooled
// and reduced to precision-recall figures. Records, never averages, are what
// ranks exchange: AP of a whole is no mean of the parts' AP.
//
//   matching   per threshold: each detection turns to the object of its class
//              that it overlaps most; each object takes the first such
//              detection; nobody has a second choice
//   curve      sorted by confidence, recall = TP/labels, precision = TP/(TP+FP)
//   AP         envelope of precision with (0, 1) before and (1, 0) behind the
//              curve, linear at 101 recalls, trapezoids; a perfect class has
//              .995
//   P, R       class means at the confidence where the smoothed mean F1 is
//              highest
//
// coco_evaluation.h has the other definition.
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

// Trivially copyable: arrays of it are gathered as bytes.
struct DetectionRecord {
  float confidence = 0;
  int32_t class_index = 0;
  Matched correct = {};  // one for each IoU threshold
};

// One image. Boxes of both in the same pixels.
// REQUIRES: detections in descending confidence.
std::vector<Matched> match_detections(std::span<const Detection> detections,
                                      std::span<const LabelledBox> labels);
std::vector<DetectionRecord> match_records(
    std::span<const Detection> detections, std::span<const LabelledBox> labels);

struct ClassPrecision {
  int64_t class_index = 0;
  int64_t labels = 0;
  std::array<double, kNumIouThresholds> ap = {};
  double precision = 0;  // read at the common confidence
  double recall = 0;

  double ap50() const { return ap[0]; }
  double mean_ap() const;
};

// One class's figures at IoU 0.5, to be drawn.
inline constexpr size_t kNumCurvePoints = 1000;
struct ClassCurves {
  // Values at confidence i / 999; beyond the highest, precision 1 and recall 0.
  std::vector<double> precision, recall;
  // The envelope, at recall i / 999; 0 for a class nobody detected.
  std::vector<double> precision_by_recall;

  std::vector<double> f1() const;
};

// Means over the classes that have labels; zeros when none has.
struct AveragePrecision {
  double map50 = 0;
  double map = 0;  // the mean over the thresholds too
  double precision = 0;
  double recall = 0;
  // The confidence at which precision and recall are read.
  double confidence = 0;
  std::vector<ClassPrecision> classes;  // those with labels, ascending
  std::vector<ClassCurves> curves;      // the curves of `classes`

  // What the best weights are chosen by.
  double fitness() const { return 0.1 * map50 + 0.9 * map; }
};

// labels_per_class[c] counts the labels of class c over all images. Equal
// confidences count in the order given: pool ranks in the order of the images.
// REQUIRES: every record's class is an index of labels_per_class.
AveragePrecision compute_average_precision(
    std::span<const DetectionRecord> records,
    std::span<const int64_t> labels_per_class);

// --- What the definitions of average precision share

// The positions of the records of each class in descending confidence; equal
// confidences keep their order.
std::vector<std::vector<size_t>> rank_by_class(
    std::span<const DetectionRecord> records, size_t num_classes);

// Running true positives and recall/precision along one class's ranking.
struct PrecisionCurve {
  std::vector<double> recall;
  std::vector<double> precision;
};

// Each definition guards against 0/0 in its own way: recall = TP/(labels +
// recall_epsilon), precision = TP/(TP + FP + precision_epsilon).
PrecisionCurve precision_curve(std::span<const DetectionRecord> records,
                               const std::vector<size_t>& ranking,
                               size_t threshold_index, int64_t labels,
                               double recall_epsilon, double precision_epsilon);

// y at `at`, for ascending x; of equal x the last counts.
double interpolate(const std::vector<double>& x, const std::vector<double>& y,
                   double at);

// The curve with (0, 1) before and (1, 0) behind, each precision the largest
// from there on.
PrecisionCurve envelope_of(const PrecisionCurve& curve);

// The area under envelope_of(curve), linear at 101 recalls, by trapezoids.
double area_under(const PrecisionCurve& curve);

// Replaces each value by the largest from there on.
void make_envelope(std::vector<double>& precision);

}  // namespace headroom::metrics
