// The detection loss: box (CIoU), objectness and class terms over all levels,
// normalised by counts of the global batch.
//
//   L = B * sum_l [ w_box/n_l * sum(1-CIoU)
//                 + w_obj*balance_l/(B*cells_l) * sum(BCE_obj)
//                 + w_cls/(n_l*classes) * sum(BCE_cls) ]
//
// n_l: matches of level l over the whole global batch of B images; both follow
// from labels, so each rank and micro-batch computes its own numerators with
// these constants and gradients simply add: no world-size factor anywhere. In
// one process this is YOLOv5's loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "configs/run_config.h"
#include "worker/loss/packed_targets.h"
#include "worker/loss/target_assignment.h"

namespace headroom::loss {

// Constants of a run.
struct LossGains {
  double box = 0, obj = 0, cls = 0;  // scaled by levels, classes and size
  std::vector<double> balance;       // each level's
  double positive_target = 1;        // label smoothing
  double negative_target = 0;
  double cls_pos_weight = 1, obj_pos_weight = 1;
  double focal_gamma = 0;
  int64_t num_classes = 1;
  double distill = 1;  // multiplies a teacher's terms, beside the gains above
};

// box *= 3/levels; cls *= classes/80 * 3/levels; obj *= (image_size/640)^2 *
// 3/levels; balance [4, 1, .4] for 3 levels, else [4, 1, .25, .06, .02].
LossGains scale_gains(const configs::Hyperparameters& hyp, int64_t num_levels,
                      int64_t num_classes, int64_t image_size,
                      double label_smoothing);

// Counts of the whole global batch. Every match counts once: where an image's
// rows are split over ranks, matches are counted either before the targets are
// split, on one rank per image, or after, summed over all these ranks.
struct GlobalCounts {
  int64_t images = 0;
  std::vector<int64_t> matches;  // each level's
  // Height of each level in cells where its rows are split over ranks; empty:
  // heads hold all of theirs.
  std::vector<int64_t> global_rows = {};
};

struct DetectionLoss {
  at::Tensor total;  // 0-dim, differentiable: this part's share of L
  // This part's share of the logged items box, obj, cls (with their gains,
  // without the factor B); detached, double [3].
  at::Tensor items;
};

// heads[level] [n, anchors, H, W, 5 + classes]; targets are those of the heads'
// rows (targets_of_rows). `teacher`: its heads for the same images, or none;
// what it asks (distillation.h) is added to the three terms with their gains
// times `distill`, divided by the same counts; where a level has no match,
// by 1.
DetectionLoss detection_loss(const std::vector<at::Tensor>& heads,
                             const std::vector<LevelTargets>& targets,
                             const GlobalCounts& counts, const LossGains& gains,
                             const std::vector<at::Tensor>& teacher = {});

// The same on a device, to which what the host knows of a step has gone already
// (device_loss.h): nothing in it is a number of the step. Where `scales` have a
// loss scale, it is in the total, not in the items.
DetectionLoss detection_loss(const std::vector<at::Tensor>& heads,
                             const PackedTargets& targets,
                             const at::Tensor& scales, const LossGains& gains);

// A step's numbers for it, on the host.
at::Tensor detection_scales(const std::vector<HeadSize>& heads,
                            const GlobalCounts& counts, const LossGains& gains,
                            double loss_scale = 1);

}  // namespace headroom::loss
