// Overlap of two boxes: IoU and the variants used as losses.
//
//   IoU     intersection / union
//   GIoU    IoU - (hull - union)/hull                       (Rezatofighi 2019)
//   DIoU    IoU - (centre distance)^2/(hull diagonal)^2     (Zheng 2020)
//   CIoU    DIoU - alpha*v, v = 4/pi^2 (atan(w2/h2) - atan(w1/h1))^2,
//           alpha = v/(v - IoU + 1 + eps) without gradient  (Zheng 2020)
//
// eps = 1e-7 is added to the union, the hull and the diagonal, never to a width
// or height: CIoU is NaN for two boxes without height.
//
// One template works with plain numbers and Dual numbers (below), so gradients
// come from the same formula. nvcc also compiles this file for the device.
#pragma once

#include <cmath>
#include <cstddef>

#include "worker/kernels/element_math.h"

namespace headroom::kernels {

// Dual<N>: a number with its derivatives by N inputs.
//
// A formula written once for T = double and T = Dual<N> gives its value and its
// exact gradient, so the backward of the box loss always matches its forward.
// At ties it follows PyTorch: min and max of two equal numbers give each half
// of the gradient, and clamping at zero passes the gradient at zero.
template <size_t N>
struct Dual {
  double value = 0;
  double d[N] = {};

  Dual() = default;
  HEADROOM_HD Dual(double constant)  // NOLINT: mixes with numbers
      : value(constant) {}
  HEADROOM_HD static Dual input(double value, size_t index) {
    Dual x(value);
    x.d[index] = 1;
    return x;
  }

  // f(a, b) with partial derivatives fa and fb.
  HEADROOM_HD static Dual combine(double f, double fa, const Dual& a, double fb,
                                  const Dual& b) {
    Dual result(f);
    for (size_t i = 0; i < N; ++i) result.d[i] = fa * a.d[i] + fb * b.d[i];
    return result;
  }
  HEADROOM_HD Dual scaled(double f, double fa) const {
    Dual result(f);
    for (size_t i = 0; i < N; ++i) result.d[i] = fa * d[i];
    return result;
  }

  HEADROOM_HD friend Dual operator+(const Dual& a, const Dual& b) {
    return combine(a.value + b.value, 1, a, 1, b);
  }
  HEADROOM_HD friend Dual operator-(const Dual& a, const Dual& b) {
    return combine(a.value - b.value, 1, a, -1, b);
  }
  HEADROOM_HD friend Dual operator*(const Dual& a, const Dual& b) {
    return combine(a.value * b.value, b.value, a, a.value, b);
  }
  HEADROOM_HD friend Dual operator/(const Dual& a, const Dual& b) {
    const double f = a.value / b.value;
    return combine(f, 1 / b.value, a, -f / b.value, b);
  }
};

// Overloads for plain numbers, so that a template works for both kinds of
// number.
template <typename T>
HEADROOM_HD T minimum(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
HEADROOM_HD T maximum(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
HEADROOM_HD T clamp_at_zero(T x) {
  return x > 0 ? x : T(0);
}
template <typename T>
HEADROOM_HD T arctangent(T x) {
  return std::atan(x);
}
template <typename T>
HEADROOM_HD T without_gradient(T x) {
  return x;
}

template <size_t N>
HEADROOM_HD Dual<N> minimum(const Dual<N>& a, const Dual<N>& b) {
  if (a.value == b.value) return Dual<N>::combine(a.value, .5, a, .5, b);
  return a.value < b.value ? a : b;
}
template <size_t N>
HEADROOM_HD Dual<N> maximum(const Dual<N>& a, const Dual<N>& b) {
  if (a.value == b.value) return Dual<N>::combine(a.value, .5, a, .5, b);
  return a.value > b.value ? a : b;
}
template <size_t N>
HEADROOM_HD Dual<N> clamp_at_zero(const Dual<N>& x) {
  return x.value >= 0 ? x : Dual<N>(0);
}
template <size_t N>
HEADROOM_HD Dual<N> arctangent(const Dual<N>& x) {
  return x.scaled(std::atan(x.value), 1 / (1 + x.value * x.value));
}
template <size_t N>
HEADROOM_HD Dual<N> without_gradient(const Dual<N>& x) {
  return Dual<N>(x.value);
}

inline constexpr double kIouEpsilon = 1e-7;

enum class IouKind { kIou, kGiou, kDiou, kCiou };

// Centre and size, in any unit.
template <typename T>
struct CentreBox {
  T x, y, w, h;
};

template <typename T>
HEADROOM_HD T box_iou(IouKind kind, const CentreBox<T>& a,
                      const CentreBox<T>& b) {
  const T half(0.5), epsilon(kIouEpsilon), one(1);
  const T a_x1 = a.x - half * a.w, a_x2 = a.x + half * a.w;
  const T a_y1 = a.y - half * a.h, a_y2 = a.y + half * a.h;
  const T b_x1 = b.x - half * b.w, b_x2 = b.x + half * b.w;
  const T b_y1 = b.y - half * b.h, b_y2 = b.y + half * b.h;

  const T shared = clamp_at_zero(minimum(a_x2, b_x2) - maximum(a_x1, b_x1)) *
                   clamp_at_zero(minimum(a_y2, b_y2) - maximum(a_y1, b_y1));
  const T joined = a.w * a.h + b.w * b.h - shared + epsilon;
  const T iou = shared / joined;
  if (kind == IouKind::kIou) return iou;

  const T hull_w = maximum(a_x2, b_x2) - minimum(a_x1, b_x1);
  const T hull_h = maximum(a_y2, b_y2) - minimum(a_y1, b_y1);
  if (kind == IouKind::kGiou) {
    const T hull = hull_w * hull_h + epsilon;
    return iou - (hull - joined) / hull;
  }
  const T diagonal = hull_w * hull_w + hull_h * hull_h + epsilon;
  const T dx = b.x - a.x, dy = b.y - a.y;
  const T diou = iou - (dx * dx + dy * dy) / diagonal;
  if (kind == IouKind::kDiou) return diou;

  const T angle = arctangent(b.w / b.h) - arctangent(a.w / a.h);
  const T v = T(4 / (M_PI * M_PI)) * angle * angle;
  const T alpha = without_gradient(v / (v - iou + (one + epsilon)));
  return diou - alpha * v;
}

// Corners, in any unit.
template <typename T>
struct CornerBox {
  T x1, y1, x2, y2;
};

// CIoU as heads without anchors use it: eps is also added to both heights.
template <typename T>
HEADROOM_HD T corner_ciou(const CornerBox<T>& a, const CornerBox<T>& b) {
  const T epsilon(kIouEpsilon), one(1);
  const T a_w = a.x2 - a.x1, a_h = a.y2 - a.y1 + epsilon;
  const T b_w = b.x2 - b.x1, b_h = b.y2 - b.y1 + epsilon;
  const T shared = clamp_at_zero(minimum(a.x2, b.x2) - maximum(a.x1, b.x1)) *
                   clamp_at_zero(minimum(a.y2, b.y2) - maximum(a.y1, b.y1));
  const T iou = shared / (a_w * a_h + b_w * b_h - shared + epsilon);
  const T hull_w = maximum(a.x2, b.x2) - minimum(a.x1, b.x1);
  const T hull_h = maximum(a.y2, b.y2) - minimum(a.y1, b.y1);
  const T diagonal = hull_w * hull_w + hull_h * hull_h + epsilon;
  const T dx = b.x1 + b.x2 - a.x1 - a.x2, dy = b.y1 + b.y2 - a.y1 - a.y2;
  const T angle = arctangent(b_w / b_h) - arctangent(a_w / a_h);
  const T v = T(4 / (M_PI * M_PI)) * angle * angle;
  const T alpha = without_gradient(v / (v - iou + (one + epsilon)));
  return iou - ((dx * dx + dy * dy) / (T(4) * diagonal) + v * alpha);
}

// How well a raw prediction of the detection head fits its target.
struct RowFit {
  double ciou = 0;
  double gradient[4] = {};  // derivatives of ciou by the raw x, y, w, h
};

// `raw` has the logits. With s = sigmoid(raw), the box is (2s - 0.5, (2s)^2 *
// anchor) in cells.
HEADROOM_HD RowFit fit_row(const double raw[4], const double anchor[2],
                           const double target[4]) {
  using Number = Dual<4>;
  double sigmoid[4];
  for (int i = 0; i < 4; ++i) sigmoid[i] = 1 / (1 + std::exp(-raw[i]));

  // The duals differentiate by the box, and the chain rule to the raw values is
  // applied below. So the duals' initial derivatives are trivial.
  CentreBox<Number> box;
  double by_raw[4];
  for (int i = 0; i < 4; ++i) {
    const double s = sigmoid[i];
    const double slope = s * (1 - s);
    const bool is_size = i >= 2;
    const double value = is_size ? 4 * s * s * anchor[i - 2] : 2 * s - 0.5;
    by_raw[i] = is_size ? 8 * s * slope * anchor[i - 2] : 2 * slope;
    const Number number = Number::input(value, static_cast<size_t>(i));
    (i == 0 ? box.x : i == 1 ? box.y : i == 2 ? box.w : box.h) = number;
  }
  const CentreBox<Number> wanted{target[0], target[1], target[2], target[3]};
  const Number ciou = box_iou(IouKind::kCiou, box, wanted);

  RowFit fit;
  fit.ciou = ciou.value;
  for (int i = 0; i < 4; ++i)
    fit.gradient[i] = ciou.d[static_cast<size_t>(i)] * by_raw[i];
  return fit;
}

}  // namespace headroom::kernels
