// level_loss: the three terms of one detection level as one autograd function.
//
// Composed of tensor operators a level is some forty small ones each way. Here
// the M matched rows are handled one by one in double, with a closed-form
// gradient, and only the objectness map and the rows' class logits go through
// vectorised passes. For backward it keeps the objectness logits and the rows,
// not the head.
//
// Objectness of a matched cell is the CIoU of its last row, at least 0 and
// without gradient, whatever the number of threads.
//
// Heads on a device go through device_loss.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/kernels/entropy.h"
#include "worker/loss/distillation.h"
#include "worker/loss/target_assignment.h"

namespace headroom::loss {

// Binary cross-entropy on logits with a weight for positives, and its focal
// form, split so that a map that is almost everywhere negative stays cheap.
//
//   L(x, t)  = (1 - t) softplus(x) + positive_weight t softplus(-x)
//   focal    = L * (.25 t + .75 (1 - t)) * q^gamma,
//              q = (1 - t) s + t (1 - s), s = sigmoid(x)      (Lin et al. 2017)
//
// A map has one target almost everywhere (0, or the smoothed negative): it is
// summed with that target in vectorised passes, and the few other entries are
// then corrected one by one in double.

// The sum of L over a tensor of logits that all have `target`, in double, so
// that it depends little on how a batch is cut.
double entropy_sum(const at::Tensor& logits, double target,
                   const kernels::EntropyRule& rule);

// dL/dx for each logit.
at::Tensor entropy_derivative(const at::Tensor& logits, double target,
                              const kernels::EntropyRule& rule);

// What each sum is multiplied by, and the rules of the two entropies.
struct LevelScales {
  double box = 0;     // one match's factor
  double obj = 0;     // one cell's factor
  double cls = 0;     // one class of a match
  double images = 0;  // the factor between the items and the loss
  double positive_target = 1;
  double negative_target = 0;
  kernels::EntropyRule obj_rule;
  kernels::EntropyRule cls_rule;
};

struct LevelLoss {
  at::Tensor total;  // 0-dim double, differentiable; images * sum of the items
  at::Tensor items;  // double [3]: box, obj, cls
};

// head [n, anchors, H, W, 5 + classes] on the CPU, any strides, n may be 0;
// with one class there is no class term. What `distillation` asks is part of
// the items, its gradient is made in forward and kept for backward.
LevelLoss level_loss(const at::Tensor& head, const LevelTargets& targets,
                     const LevelScales& scales,
                     const Distillation& distillation = {});

}  // namespace headroom::loss
