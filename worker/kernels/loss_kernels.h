// LossKernels: the detection loss where its heads do not lie on the CPU.
//
// The loss knows no CUDA: it is handed this interface, as maps are handed
// MapKernels. All levels go through one kernel each way, and the number of
// matches is read on the device: no launch depends on a number of the step, so
// a graph of the device holds for every step. Work is put on the device's
// current stream, and nothing waits for it.
//
// Errors: HEADROOM_CHECK for shapes and types; c10::Error from the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/kernels/entropy.h"

namespace c10 {
struct Device;
}

namespace headroom::kernels {

// The number of blocks of threads that share a level's cells, and of those that
// share its matches.
inline constexpr int64_t kLossBlocks = 128;
// The most levels of a head; the largest shipped models have four.
inline constexpr int64_t kMostLossLevels = 5;
// The scales hold one value for each item (box, obj, cls) of each level, then
// two for all levels: the images of the global batch, and what the loss is
// multiplied by for backward.
inline constexpr int64_t kLossItems = 3;
inline constexpr int64_t kScalesOfAll = 2;
// What a match keeps for backward: the gradient of its overlap by the raw box,
// and its objectness target, 0 where another match of the cell is the last.
inline constexpr int64_t kFitFields = 5;

// What of the loss stays the same throughout a run.
struct LossRules {
  EntropyRule obj, cls;
  double positive_target = 1, negative_target = 0;
};

// Bytes of a level's matches in their packed buffer, for at most `capacity` of
// them, sorted by cell and in the order of assignment within one:
//
//   int32    how many there are, and three more to fill 16 bytes
//   int32    [capacity]: the cell, its place in [n, H, W, anchors]
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

// One call over all levels. All tensors are dense, on one device.
struct LossCall {
  struct Level {
    at::Tensor head;    // [n, H, W, anchors, 5 + classes], float32 or float64
    int64_t begin = 0;  // the byte in `targets` at which its matches begin
    int64_t capacity = 0;
    // What forward keeps for backward, of the head's type but for `fit`:
    at::Tensor objectness;  // the logits of all cells
    at::Tensor classes;     // [capacity, classes], the class logits of the
                            // matches; no columns for a single class
    at::Tensor fit;         // [capacity, kFitFields], double
    at::Tensor gradient;    // the head's; undefined in forward
  };
  std::vector<Level> levels;
  at::Tensor targets;  // bytes, each level as MatchLayout says
  at::Tensor scales;   // double [levels * kLossItems + kScalesOfAll]
  LossRules rules;
  // Forward: double [levels * 2 * kLossBlocks * kLossItems] of scratch, and
  // what it fills.
  at::Tensor partial, items, total;  // items [3] and total [], double
  at::Tensor by_total;               // backward: double []
};

class LossKernels {
 public:
  // A copy of a contiguous CPU tensor on a device; the host does not wait and
  // may release its own.
  virtual at::Tensor upload(const at::Tensor& host,
                            const c10::Device& device) = 0;

  // The items and their sum over all levels (worker/loss/level_loss.h).
  virtual void loss(const LossCall& call) = 0;
  // The gradients of all heads, every element of them.
  virtual void loss_gradient(const LossCall& call) = 0;

 protected:
  ~LossKernels() = default;  // nobody owns them through this
};

}  // namespace headroom::kernels
