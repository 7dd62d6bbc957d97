// place_loss: the loss of a head without anchors, as one autograd function.
//
//   cls   binary cross-entropy of every class of every place; the target is the
//         place's weight (place_assignment.h) at the class of its label, else 0
//   box   weight * (1 - CIoU of the predicted box and the label)
//   dfl   weight * distribution focal loss of the four distances (Li et al.,
//         "Generalized Focal Loss", NeurIPS 2020, arXiv:2006.04388)
//
//   L = B / S * (gain_cls * sum cls + gain_box * sum box + gain_dfl * sum dfl)
//
// B is the number of images, and S the sum of the weights, at least 1, both of
// the whole global batch. S depends on predictions, but has no gradient, so a
// part of the batch needs no exchange before its backward: `total` lacks the
// factor 1/S, and the step divides the summed gradient by the summed S.
//
// A level has two maps in channels-last memory: `box` [n, 4 * bins, H, W], for
// the left, top, right and bottom side of the box `bins` logits each, and `cls`
// [n, classes, H, W]. A distance is the mean of 0..bins-1 under the softmax of
// its logits, in cells.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/base/head_fields.h"
#include "worker/loss/place_assignment.h"
#include "worker/loss/target_assignment.h"

namespace headroom::loss {

struct PlaceLossRule {
  double box_gain = 7.5, cls_gain = 0.5, dfl_gain = 1.5;
  int64_t num_classes = 80;
  PlaceRule places;
  double images = 1;  // B
  // A factor of `total`, chosen near 1/S to keep float16 gradients in range.
  double factor = 1;
};

struct PlaceLoss {
  at::Tensor total;  // 0-dim double, differentiable: factor * S * L
  // Double [4]: box, cls and dfl with their gains, times S; then the sum of
  // weights, this part's share of S. Detached.
  at::Tensor items;
};

// The maps of a detection level, or of a rank's rows of it.
struct PlaceMaps {
  at::Tensor box, cls;
  int64_t stride = 1;
  // Rows of the whole level, and the first of the maps' rows; 0: whole images.
  int64_t height = 0, first_row = 0;
};

// `levels`: finest first, of whole images, on the CPU. `labels`: of the images
// in the maps.
PlaceLoss place_loss(const std::vector<PlaceMaps>& levels,
                     const std::vector<LabelRow>& labels,
                     const PlaceLossRule& rule);

}  // namespace headroom::loss
