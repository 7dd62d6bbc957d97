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
#include <functional>
#include <vector>

#include "parallel/base/head_fields.h"
#include "worker/loss/place_assignment.h"
#include "worker/loss/target_assignment.h"

namespace headroom::loss {

struct PlaceGains {
  double box = 7.5, cls = 0.5, dfl = 1.5;
};

struct PlaceLossRule {
  PlaceGains gains;
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

// The maps of a detection level.
struct PlaceMaps {
  at::Tensor box, cls;
  int64_t stride = 1;
  // Of the whole level, if ranks share the images: the maps' first row, and the
  // number of rows; 0 if the maps hold all rows.
  int64_t first_row = 0, height = 0;
};

// Gathers a tensor from all ranks that share the images, in the order of their
// rows; the tensors have one size. Not set if the maps hold whole images.
using GatherParts =
    std::function<std::vector<at::Tensor>(const at::Tensor& own)>;

// `levels`: finest first, on the CPU. `labels`: of the images in the maps, the
// same on all ranks that share them. Collective over these ranks.
PlaceLoss place_loss(const std::vector<PlaceMaps>& levels,
                     const std::vector<LabelRow>& labels,
                     const PlaceLossRule& rule, const GatherParts& gather = {});

}  // namespace headroom::loss
