// The detection loss: box (CIoU), objectness and class terms over all levels,
// normalised by counts of the global batch.
//
//   L = B * sum_l [ w_box/n_l * sum(1-CIoU)
//                 + w_obj*balance_l/(B*cells_l) * sum(BCE_obj)
//                 + w_cls/(n_l*classes) * sum(BCE_cls) ]
//
// n_l is the number of matches of level l in the whole global batch of B
// images. Both n_l and B follow from the labels, so every rank and micro-batch
// computes its own sums with these constants, and gradients simply add up: no
// factor depends on the number of ranks. In one process this is YOLOv5's loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "configs/run_config.h"
#include "worker/loss/packed_targets.h"
#include "worker/loss/target_assignment.h"

namespace headroom::loss {

// Constants of the loss in a run.
struct LossGains {
  // scaled by number of levels, classes and image size
  double box = 0, obj = 0, cls = 0;
  std::vector<double> balance;  // a factor for each level
  double positive_target = 1;   // less than 1 with label smoothing
  double negative_target = 0;
  double cls_pos_weight = 1, obj_pos_weight = 1;
  // A weight for each class, used instead of cls_pos_weight; empty if all
  // classes have that one.
  std::vector<double> class_weights = {};
  double focal_gamma = 0;
  int64_t num_classes = 1;
  double distill = 1;  // factor of a teacher's terms, on top of the gains above
};

// box *= 3/levels; cls *= classes/80 * 3/levels; obj *= (image_size/640)^2 *
// 3/levels; balance [4, 1, .4] for 3 levels, else [4, 1, .25, .06, .02].
// Positives of all classes weigh 1 until weigh_classes() is called.
LossGains scale_gains(const configs::Hyperparameters& hyp, int64_t num_levels,
                      int64_t num_classes, int64_t image_size,
                      double label_smoothing);

// Sets the weight of each class's positives (configs/class_weights.h).
void weigh_classes(const std::vector<double>& weights, LossGains& gains);

// Counts over the whole global batch; every match counts once. If the rows of
// an image are split over ranks, count the matches on one rank per image before
// the targets are split; or count on every rank afterwards, and add the counts
// of the image's ranks.
struct GlobalCounts {
  int64_t images = 0;
  std::vector<int64_t> matches;  // number of matches of each level
  // Height of each level in cells, if its rows are split over ranks; empty if
  // each head holds all rows of its level.
  std::vector<int64_t> global_rows = {};
};

struct DetectionLoss {
  at::Tensor total;  // 0-dim, differentiable: this part's contribution to L
  // This part's contribution to the logged items box, obj, cls (with their
  // gains, without the factor B). Detached, double [3].
  at::Tensor items;
};

// heads[level]: [n, anchors, H, W, 5 + classes]. `targets` has the matches in
// the rows that the heads hold (targets_of_rows). `teacher`: the teacher's
// heads for the same images, or empty. Its terms (distillation.h) are added
// with the gains times `distill`. They are divided by the same counts, or by 1
// for a level without matches.
DetectionLoss detection_loss(const std::vector<at::Tensor>& heads,
                             const std::vector<LevelTargets>& targets,
                             const GlobalCounts& counts, const LossGains& gains,
                             const std::vector<at::Tensor>& teacher = {});

// Variant for a device. `scales`, the factors of the step (device_loss.h), are
// already in device memory, so no argument of a launch depends on the step. A
// loss scale in `scales` multiplies the total, not the items.
DetectionLoss detection_loss(const std::vector<at::Tensor>& heads,
                             const PackedTargets& targets,
                             const at::Tensor& scales, const LossGains& gains);

// Makes `scales` for the device's variant, on the host.
at::Tensor detection_scales(const std::vector<HeadSize>& heads,
                            const GlobalCounts& counts, const LossGains& gains,
                            double loss_scale = 1);

}  // namespace headroom::loss
