#include <string>

#include "parallel/base/check.h"
#include "worker/loss/detection_loss.h"

namespace headroom::loss {

LossGains scale_gains(const configs::Hyperparameters& hyp, int64_t num_levels,
                      int64_t num_classes, int64_t image_size,
                      double label_smoothing) {
  const std::vector<double> three_levels = {4, 1, 0.4};
  const std::vector<double> more_levels = {4, 1, 0.25, 0.06, 0.02};
  const std::vector<double>& balance =
      num_levels == 3 ? three_levels : more_levels;
  if (num_levels < 1 || num_levels > static_cast<int64_t>(balance.size()))
    throw Error("loss",
                "the model has " + std::to_string(num_levels) +
                    " detection levels, the objectness balance is defined "
                    "for 1 to 5",
                "use a model with at most 5 detection levels");
  HEADROOM_CHECK(num_classes >= 1 && image_size >= 1,
                 std::to_string(num_classes) + " classes at " +
                     std::to_string(image_size) + " px");

  const double per_level = 3.0 / static_cast<double>(num_levels);
  const double size = static_cast<double>(image_size) / 640;
  LossGains gains;
  gains.box = hyp.box * per_level;
  gains.cls = hyp.cls * static_cast<double>(num_classes) / 80 * per_level;
  gains.obj = hyp.obj * size * size * per_level;
  gains.balance.assign(balance.begin(), balance.begin() + num_levels);
  gains.positive_target = 1 - 0.5 * label_smoothing;
  gains.negative_target = 0.5 * label_smoothing;
  gains.cls_pos_weight = hyp.cls_pw;
  gains.obj_pos_weight = hyp.obj_pw;
  gains.focal_gamma = hyp.fl_gamma;
  gains.num_classes = num_classes;
  gains.distill = hyp.distill;
  return gains;
}

}  // namespace headroom::loss
