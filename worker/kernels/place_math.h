// place_math: the arithmetic of heads without anchors, for one place, one side
// of a box or one logit: distances, candidates of a label, overlap, alignment,
// and the terms of the loss (worker/loss/place_assignment.h, place_loss.h).
//
// A place is a cell of a level. nvcc also compiles this file for the device.
// T is float or double.
#pragma once

#include <cmath>
#include <cstdint>

#include "parallel/base/head_fields.h"
#include "worker/kernels/box_iou.h"
#include "worker/kernels/element_math.h"

namespace headroom::kernels {

// --- predictions ---

// The softmax of a side's logits, and its mean: the side's distance in cells.
struct SideDistance {
  double mean = 0;
  double probabilities[kDistanceBins] = {};
  // The derivative of the mean by a logit.
  HEADROOM_HD double by_logit(int64_t bin) const {
    return probabilities[bin] * (static_cast<double>(bin) - mean);
  }
};

template <typename T>
HEADROOM_HD SideDistance distance_of(const T* logits) {
  SideDistance distance;
  auto most = static_cast<double>(logits[0]);
  for (int64_t bin = 1; bin < kDistanceBins; ++bin) {
    most = maximum(most, static_cast<double>(logits[bin]));
  }
  double sum = 0;
  for (int64_t bin = 0; bin < kDistanceBins; ++bin) {
    distance.probabilities[bin] =
        std::exp(static_cast<double>(logits[bin]) - most);
    sum += distance.probabilities[bin];
  }
  for (int64_t bin = 0; bin < kDistanceBins; ++bin) {
    distance.probabilities[bin] /= sum;
    distance.mean += static_cast<double>(bin) * distance.probabilities[bin];
  }
  return distance;
}

template <typename T>
HEADROOM_HD T score_of(T logit) {
  return 1 / (1 + std::exp(-logit));
}

// The box whose sides have these distances from (x, y).
template <typename T>
HEADROOM_HD CornerBox<T> box_around(double x, double y, const T* distances) {
  return {T(x) - distances[0], T(y) - distances[1], T(x) + distances[2],
          T(y) + distances[3]};
}

// The box that a place predicts, in pixels. `distances` are in cells.
template <typename T>
HEADROOM_HD CornerBox<T> predicted_box(int64_t column, int64_t row,
                                       int64_t stride, const T* distances) {
  const CornerBox<T> box =
      box_around(static_cast<double>(column) + 0.5,
                 static_cast<double>(row) + 0.5, distances);
  const auto pixels = static_cast<T>(stride);
  return {box.x1 * pixels, box.y1 * pixels, box.x2 * pixels, box.y2 * pixels};
}

// --- assignment ---

// A point this near to a side, or nearer, is not inside a box.
inline constexpr double kPlaceBorder = 1e-9;

// Makes the side from `low` to `high` at least `least` long.
template <typename T>
HEADROOM_HD void widen_side(T least, T& low, T& high) {
  const T side = high - low, centre = (low + high) / 2;
  if (side >= least) return;
  low = centre - least / 2;
  high = centre + least / 2;
}

// The box in which the centre of a candidate lies: the label's, with sides of
// at least `least` pixels, so that a label smaller than a cell has candidates.
template <typename T>
HEADROOM_HD CornerBox<T> candidate_area(const CornerBox<T>& box, T least) {
  CornerBox<T> area = box;
  widen_side(least, area.x1, area.x2);
  widen_side(least, area.y1, area.y2);
  return area;
}

template <typename T>
HEADROOM_HD bool is_centre_between(int64_t cell, int64_t stride, T low,
                                   T high) {
  const T point = (static_cast<T>(cell) + T(0.5)) * static_cast<T>(stride);
  return point - low > T(kPlaceBorder) && high - point > T(kPlaceBorder);
}

// Whether the centre of the cell lies in `area`.
template <typename T>
HEADROOM_HD bool is_candidate(const CornerBox<T>& area, int64_t column,
                              int64_t row, int64_t stride) {
  return is_centre_between(column, stride, area.x1, area.x2) &&
         is_centre_between(row, stride, area.y1, area.y2);
}

// Cells [begin, end) whose centres lie between `low` and `high`, out of cells
// [first, last).
struct CellRange {
  int64_t begin = 0, end = 0;
  HEADROOM_HD int64_t size() const { return end > begin ? end - begin : 0; }
};

// The cell of a pixel; first - 1 or last if it is outside of [first, last).
template <typename T>
HEADROOM_HD int64_t cell_of(T pixel, int64_t stride, int64_t first,
                            int64_t last) {
  // In double before the cast: a box may be far outside of the image.
  const double cell =
      std::floor(static_cast<double>(pixel) / static_cast<double>(stride));
  const double least = static_cast<double>(first) - 1;
  return static_cast<int64_t>(
      minimum(maximum(cell, least), static_cast<double>(last)));
}

template <typename T>
HEADROOM_HD CellRange cells_between(T low, T high, int64_t stride,
                                    int64_t first, int64_t last) {
  CellRange range{maximum(first, cell_of(low, stride, first, last)),
                  minimum(last, cell_of(high, stride, first, last) + 1)};
  while (range.begin < range.end &&
         !is_centre_between(range.begin, stride, low, high)) {
    ++range.begin;
  }
  while (range.begin < range.end &&
         !is_centre_between(range.end - 1, stride, low, high)) {
    --range.end;
  }
  return range;
}

// u: the overlap of a label and a predicted box.
template <typename T>
HEADROOM_HD T place_overlap(const CornerBox<T>& label,
                            const CornerBox<T>& predicted) {
  const T overlap = corner_ciou<T>(label, predicted);
  return overlap > 0 ? overlap : T(0);
}

// t: the alignment. `score`: the predicted probability of the label's class.
template <typename T>
HEADROOM_HD T place_alignment(T score, T overlap) {
  const T cubed = overlap * overlap * overlap;
  return std::sqrt(score) * (cubed * cubed);
}

// The weight of a place, from the largest alignment and overlap of its label's
// places.
template <typename T>
HEADROOM_HD T scaled_alignment(T alignment, T most_alignment, T most_overlap) {
  constexpr T kNeverZero = T(1e-9);
  return alignment * most_overlap / (most_alignment + kNeverZero);
}

// --- loss ---

// The CIoU of the box at these distances from (x, y) and a label's box, all in
// cells. A Number is double or Dual.
template <typename Number>
HEADROOM_HD Number place_ciou(double x, double y, const Number* distances,
                              const CornerBox<double>& label) {
  return corner_ciou<Number>(
      box_around(x, y, distances),
      {Number(label.x1), Number(label.y1), Number(label.x2), Number(label.y2)});
}

// The distance from (x, y) to a side of the label's box.
HEADROOM_HD double wanted_distance(double x, double y, int64_t side,
                                   const CornerBox<double>& label) {
  if (side == 0) return x - label.x1;
  if (side == 1) return y - label.y1;
  return side == 2 ? label.x2 - x : label.y2 - y;
}

// The loss of one side: cross-entropy of the two bins next to the distance
// `wanted`, which is shared between them. Adds the derivatives by the logits,
// times `scale`, to `gradient`.
HEADROOM_HD double side_loss(const SideDistance& distance, double wanted,
                             double scale, double* gradient) {
  const double most = static_cast<double>(kDistanceBins) - 1 - 0.01;
  const double target = minimum(maximum(wanted, 0.0), most);
  const auto low = static_cast<int64_t>(target);
  const double high_share = target - static_cast<double>(low);
  const double low_share = 1 - high_share;
  // Without a variable index the gradient may stay in registers.
  double of_low = 0, of_high = 0;
  for (int64_t bin = 0; bin < kDistanceBins; ++bin) {
    const double p = distance.probabilities[bin];
    gradient[bin] += scale * p;
    if (bin == low) {
      gradient[bin] -= scale * low_share;
      of_low = p;
    } else if (bin == low + 1) {
      gradient[bin] -= scale * high_share;
      of_high = p;
    }
  }
  return -(low_share * std::log(of_low) + high_share * std::log(of_high));
}

}  // namespace headroom::kernels
