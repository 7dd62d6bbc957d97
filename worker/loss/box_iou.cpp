#include "worker/loss/box_iou.h"

namespace headroom {

RowFit fit_row(const double raw[4], const double anchor[2],
               const double target[4]) {
  using Number = Dual<4>;
  double sigmoid[4];
  for (int i = 0; i < 4; ++i) sigmoid[i] = 1 / (1 + std::exp(-raw[i]));

  // Differentiated by the box here and by the raw values below: four inputs
  // that are the box itself keep the duals' first derivatives trivial.
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

}  // namespace headroom
