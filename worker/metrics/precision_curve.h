// Pieces that the definitions of average precision are made of.
//
// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker/metrics/average_precision.h"

namespace headroom::metrics {

// For each class the positions of its records in descending confidence; equal
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

// YOLOv5's area: the envelope with (0, 1) before and (1, 0) behind the curve,
// linear at 101 recalls, trapezoids.
double area_under(const PrecisionCurve& curve);

// Replaces each value by the largest from there on.
void make_envelope(std::vector<double>& precision);

}  // namespace headroom::metrics
