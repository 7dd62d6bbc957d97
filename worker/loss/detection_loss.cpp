#include "worker/loss/detection_loss.h"

#include <ATen/ops/add.h>

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"
#include "worker/kernels/cpu/kernel_registration.h"
#include "worker/loss/device_loss.h"
#include "worker/loss/level_loss.h"

namespace headroom::loss {
namespace {

LevelScales level_scales(const HeadSize& head, size_t level,
                         const GlobalCounts& counts, const LossGains& gains) {
  const int64_t global_rows =
      counts.global_rows.empty() ? head.height : counts.global_rows[level];
  LevelScales scales;
  scales.images = static_cast<double>(counts.images);
  scales.positive_target = gains.positive_target;
  scales.negative_target = gains.negative_target;
  scales.obj_rule = {gains.obj_pos_weight, gains.focal_gamma};
  scales.cls_rule = {gains.cls_pos_weight, gains.focal_gamma};
  scales.class_weights = gains.class_weights;
  HEADROOM_CHECK(head.height <= global_rows,
                 cat(head.height, " rows of cells here, ", global_rows,
                     " in the whole level"));
  const int64_t cells = head.anchors * global_rows * head.width;
  scales.obj = gains.obj * gains.balance[level] /
               static_cast<double>(counts.images * cells);
  if (counts.matches[level] > 0) {
    const auto matches = static_cast<double>(counts.matches[level]);
    scales.box = gains.box / matches;
    scales.cls = gains.cls / (matches * static_cast<double>(gains.num_classes));
  }
  return scales;
}

void check_levels(size_t num_levels, const GlobalCounts& counts,
                  const LossGains& gains) {
  HEADROOM_CHECK(num_levels > 0 && counts.matches.size() == num_levels &&
                     (counts.global_rows.empty() ||
                      counts.global_rows.size() == num_levels) &&
                     gains.balance.size() == num_levels,
                 cat(num_levels, " heads, ", counts.matches.size(), " counts, ",
                     counts.global_rows.size(), " heights, ",
                     gains.balance.size(), " balances"));
  HEADROOM_CHECK(counts.images > 0,
                 cat(counts.images, " images in the global batch"));
}

void check_head(const at::Tensor& head, const LossGains& gains) {
  HEADROOM_CHECK(head.size(-1) == 5 + gains.num_classes,
                 cat("head of ", head.size(-1), " fields for ",
                     gains.num_classes, " classes"));
}

Distillation distillation(const at::Tensor& teacher, const LevelScales& scales,
                          int64_t global_matches, const LossGains& gains) {
  const auto matches =
      static_cast<double>(std::max<int64_t>(1, global_matches));
  Distillation rule;
  rule.teacher = teacher;
  rule.box = gains.distill * gains.box / matches;
  rule.obj = gains.distill * scales.obj;
  rule.cls = gains.distill * gains.cls /
             (matches * static_cast<double>(gains.num_classes));
  return rule;
}

}  // namespace

DetectionLoss detection_loss(const std::vector<at::Tensor>& heads,
                             const std::vector<LevelTargets>& targets,
                             const GlobalCounts& counts, const LossGains& gains,
                             const std::vector<at::Tensor>& teacher) {
  const MemoryCategoryScope scope(MemoryCategory::kLoss);
  const size_t num_levels = heads.size();
  check_levels(num_levels, counts, gains);
  HEADROOM_CHECK(targets.size() == num_levels,
                 cat(num_levels, " heads, ", targets.size(), " targets"));
  std::vector<HeadSize> sizes;
  for (size_t i = 0; i < num_levels; ++i) {
    check_head(heads[i], gains);
    HEADROOM_CHECK(targets[i].size() <= counts.matches[i],
                   cat(targets[i].size(), " matches here, ", counts.matches[i],
                       " in the whole global batch"));
    sizes.push_back(size_of(heads[i]));
  }
  if (kernels::DeviceKernels* kernels =
          kernels::device_kernels_for(heads.front())) {
    HEADROOM_CHECK(teacher.empty(), "a teacher's heads are on the CPU");
    const c10::Device device = heads.front().device();
    PackedTargets packed = pack_targets(targets, sizes);
    packed.bytes = kernels->upload(packed.bytes, device);
    return detection_loss(
        heads, packed,
        kernels->upload(detection_scales(sizes, counts, gains), device), gains);
  }
  DetectionLoss loss;
  for (size_t i = 0; i < num_levels; ++i) {
    const LevelScales scales = level_scales(sizes[i], i, counts, gains);
    const Distillation rule =
        teacher.empty()
            ? Distillation()
            : distillation(teacher[i], scales, counts.matches[i], gains);
    const LevelLoss level = level_loss(heads[i], targets[i], scales, rule);
    loss.total = i == 0 ? level.total : at::add(loss.total, level.total);
    loss.items = i == 0 ? level.items : at::add(loss.items, level.items);
  }
  return loss;
}

DetectionLoss detection_loss(const std::vector<at::Tensor>& heads,
                             const PackedTargets& targets,
                             const at::Tensor& scales, const LossGains& gains) {
  const MemoryCategoryScope scope(MemoryCategory::kLoss);
  for (const at::Tensor& head : heads) check_head(head, gains);
  kernels::DeviceKernels* const kernels =
      kernels::device_kernels_for(heads.front());
  HEADROOM_CHECK(kernels != nullptr, "packed targets for heads on the CPU");
  const kernels::LossRules rules = {
      .obj = {gains.obj_pos_weight, gains.focal_gamma},
      .cls = {gains.cls_pos_weight, gains.focal_gamma},
      .positive_target = gains.positive_target,
      .negative_target = gains.negative_target,
      .weighs_classes = !gains.class_weights.empty()};
  const LevelLoss loss = device_loss(*kernels, heads, targets, scales, rules);
  return {loss.total, loss.items};
}

at::Tensor detection_scales(const std::vector<HeadSize>& heads,
                            const GlobalCounts& counts, const LossGains& gains,
                            double loss_scale) {
  check_levels(heads.size(), counts, gains);
  std::vector<LevelScales> levels;
  for (size_t i = 0; i < heads.size(); ++i) {
    levels.push_back(level_scales(heads[i], i, counts, gains));
  }
  return step_scales(levels, loss_scale);
}

LossGains scale_gains(const configs::Hyperparameters& hyp, int64_t num_levels,
                      int64_t num_classes, int64_t image_size,
                      double label_smoothing) {
  const std::vector<double> three_levels = {4, 1, 0.4};
  const std::vector<double> more_levels = {4, 1, 0.25, 0.06, 0.02};
  const std::vector<double>& balance =
      num_levels == 3 ? three_levels : more_levels;
  if (num_levels < 1 || num_levels > static_cast<int64_t>(balance.size()))
    throw Error("loss",
                cat("the model has ", num_levels,
                    " detection levels, the objectness balance is defined "
                    "for 1 to 5"),
                "use a model with at most 5 detection levels");
  HEADROOM_CHECK(num_classes >= 1 && image_size >= 1,
                 cat(num_classes, " classes at ", image_size, " px"));

  const double per_level = 3.0 / static_cast<double>(num_levels);
  const double size = static_cast<double>(image_size) / 640;
  LossGains gains;
  gains.box = hyp.box * per_level;
  gains.cls = hyp.cls * static_cast<double>(num_classes) / 80 * per_level;
  gains.obj = hyp.obj * size * size * per_level;
  gains.balance.assign(balance.begin(), balance.begin() + num_levels);
  gains.positive_target = 1 - 0.5 * label_smoothing;
  gains.negative_target = 0.5 * label_smoothing;
  gains.obj_pos_weight = hyp.obj_pw;
  gains.focal_gamma = hyp.fl_gamma;
  gains.num_classes = num_classes;
  gains.distill = hyp.distill;
  return gains;
}

void weigh_classes(const std::vector<double>& weights, LossGains& gains) {
  HEADROOM_CHECK(
      std::ssize(weights) == gains.num_classes,
      cat(weights.size(), " weights of ", gains.num_classes, " classes"));
  gains.cls_pos_weight = weights.front();
  gains.class_weights = weights;
  // Equal weights need no table.
  if (std::ranges::count(weights, weights.front()) == gains.num_classes) {
    gains.class_weights.clear();
  }
}

}  // namespace headroom::loss
