// LossCall: the arguments of the detection loss on a device
// (device_kernels.h).
//
// One kernel in each direction processes all levels, and the number of matches
// is read on the device. So no launch depends on values of the step, and a
// captured graph is valid for every step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/kernels/entropy.h"

namespace headroom::kernels {

// The number of thread blocks that process a level's cells. The same number of
// blocks process its matches.
inline constexpr int64_t kLossBlocks = 128;
// Largest number of levels of a head; the largest shipped models have four.
inline constexpr int64_t kMostLossLevels = 5;
// The scales: first one value for each item (box, obj, cls) of each level; then
// the number of images of the global batch, and the factor of the loss in
// backward; then, if LossRules::weighs_classes, the weight of each class's
// positives.
inline constexpr int64_t kLossItems = 3;
inline constexpr int64_t kScalesOfAll = 2;
// Values of a match kept for backward: the gradient of its overlap with respect
// to the raw box (4 values), and its objectness target, which is 0 if a later
// match of the same cell overwrites it.
inline constexpr int64_t kFitFields = 5;

// The part of the loss that is constant in a run.
struct LossRules {
  EntropyRule obj, cls;
  double positive_target = 1, negative_target = 0;
  // Whether the scales have a positive weight for each class, used in place of
  // cls's.
  bool weighs_classes = false;
};

// Layout of a level's matches in their packed buffer, for at most `capacity`
// matches, which are sorted by cell, and by order of assignment within a cell:
//
//   int32    the number of matches, then padding to 16 bytes
//   int32    [capacity]: the cell's index in [n, H, W, anchors]
//   int32    [capacity]: the class
//   T        [capacity, 4] boxes, then [capacity, 2] anchors, in cells
struct MatchLayout {
  int64_t capacity = 0;
  int64_t element_bytes = 4;  // bytes of a T

  static constexpr int64_t kAlignment = 16;
  static constexpr int64_t aligned(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  int64_t cells() const { return kAlignment; }
  int64_t classes() const { return cells() + aligned(4 * capacity); }
  int64_t boxes() const { return classes() + aligned(4 * capacity); }
  int64_t anchors() const {
    return boxes() + aligned(4 * element_bytes * capacity);
  }
  int64_t bytes() const {
    return anchors() + aligned(2 * element_bytes * capacity);
  }
};

// One call for all levels. All tensors are dense and on one device.
struct LossCall {
  struct Level {
    at::Tensor head;    // [n, H, W, anchors, 5 + classes], float32 or float64
    int64_t begin = 0;  // offset of its matches in `targets`
    int64_t capacity = 0;
    // Forward stores these for backward, in the head's type except `fit`.
    at::Tensor objectness;  // logits of all cells
    // [capacity, classes]: class logits of the matches; [capacity, 0] for one
    // class
    at::Tensor classes;
    at::Tensor fit;  // [capacity, kFitFields], double
    // Backward writes the head's gradient here, [n, H, W, channels]: the fields
    // of a cell's anchors, then zeros. Its type is the head's; or it has 16
    // bits, and a multiple of kChannelsTogether channels.
    at::Tensor gradient;
  };
  std::vector<Level> levels;
  int64_t num_classes = 0;
  at::Tensor targets;  // bytes; each level has the layout of MatchLayout
  // double [levels * kLossItems + kScalesOfAll], followed by [classes] if
  // rules.weighs_classes
  at::Tensor scales;
  LossRules rules;
  // For forward: `partial` is scratch, double [levels * 2 * kLossBlocks *
  // kLossItems]; `items` and `total` are outputs.
  at::Tensor partial, items, total;  // items: double [3]; total: double []
  at::Tensor by_total;  // for backward: gradient of `total`, double []
};

}  // namespace headroom::kernels
