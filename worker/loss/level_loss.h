// level_loss: the three terms of one detection level as one autograd function.
//
// If a level were composed of tensor operators, it would take about forty small
// operators in each direction. Here the M matched rows are processed one by one
// in double, with a closed-form gradient; only the objectness map and the rows'
// class logits use vectorised passes. For backward it keeps the objectness
// logits and the rows, not the head.
//
// The objectness target of a matched cell is the CIoU of its last row, at least
// 0 and without gradient, for any number of threads.
//
// Heads on a device use device_loss.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/kernels/entropy.h"
#include "worker/loss/distillation.h"
#include "worker/loss/target_assignment.h"

namespace headroom::loss {

// entropy_sum, entropy_derivative: binary cross-entropy on logits with a weight
// for positives, and its focal form.
//
//   L(x, t)  = (1 - t) softplus(x) + positive_weight t softplus(-x)
//   focal    = L * (.25 t + .75 (1 - t)) * q^gamma,
//              q = (1 - t) s + t (1 - s), s = sigmoid(x)      (Lin et al. 2017)
//
// Almost all entries of a map have the same target (0, or the smoothed
// negative). So the map is summed with that target in vectorised passes, and
// the few other entries are then corrected one by one in double.

// The sum of L over logits that all have `target`. Summed in double, so that it
// depends little on how a batch is divided.
double entropy_sum(const at::Tensor& logits, double target,
                   const kernels::EntropyRule& rule);

// dL/dx for each logit.
at::Tensor entropy_derivative(const at::Tensor& logits, double target,
                              const kernels::EntropyRule& rule);

// The factor of each sum, and the rules of the obj and cls entropies.
struct LevelScales {
  double box = 0;     // factor for one match
  double obj = 0;     // factor for one cell
  double cls = 0;     // factor for one class of a match
  double images = 0;  // factor of the sum of the items in the total
  double positive_target = 1;
  double negative_target = 0;
  kernels::EntropyRule obj_rule;
  kernels::EntropyRule cls_rule;
  // In place of cls_rule's positive weight, one for each class; may be empty.
  std::vector<double> class_weights = {};

  kernels::EntropyRule rule_of_class(int64_t c) const {
    return class_weights.empty()
               ? cls_rule
               : kernels::EntropyRule{class_weights[static_cast<size_t>(c)],
                                      cls_rule.focal_gamma};
  }
};

struct LevelLoss {
  at::Tensor total;  // 0-dim double, differentiable; images * sum of the items
  at::Tensor items;  // double [3]: box, obj, cls
};

// head: [n, anchors, H, W, 5 + classes] on the CPU, with any strides; n may be
// 0. With one class there is no class term. Terms of `distillation` are part of
// the items; their gradient is computed in forward and kept for backward.
LevelLoss level_loss(const at::Tensor& head, const LevelTargets& targets,
                     const LevelScales& scales,
                     const Distillation& distillation = {});

}  // namespace headroom::loss
