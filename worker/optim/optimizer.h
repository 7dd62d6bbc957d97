// Optimizer: SGD, Adam and AdamW behind one call.
//
// It has no state of its own: the moments are flat buffers like the parameters,
// so they are sharded, saved and loaded in the same way. It uses
// at::get_num_threads() threads; their number does not change the result.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "configs/optimizer_kind.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/kernels/commit_numbers.h"
#include "worker/kernels/element_math.h"
#include "worker/optim/lr_schedule.h"

namespace headroom::optim {

// The norm of the gradient, for the vote, the log and clipping.
//
// In a step that accumulates, the norm is that of the accumulated gradient plus
// this step's gradient, before either is changed, so the function takes two
// tensors. Squares are summed in double over chunks whose size depends only on
// the tensor's size, so the result does not depend on the number of threads.
// Nothing is allocated.

// Returns ||a + b||^2, or ||a||^2 if b is undefined. REQUIRES: flat tensors of
// equal size, both float or both double.
double squared_norm_of_sum(const at::Tensor& a, const at::Tensor& b);

void add_in_place(const at::Tensor& a, const at::Tensor& b);

// The factor that limits a gradient's norm to about `max_norm`: min(1, max_norm
// / (norm + 1e-6)), as PyTorch clips.
double clip_coefficient(double norm,
                        double max_norm = kernels::kMostGradientNorm);

// A range of a flat buffer that belongs to one parameter group.
struct Segment {
  int64_t offset = 0;  // in elements
  int64_t size = 0;
  int group = kWeightGroup;
};

struct GroupSettings {
  double lr = 0;
  double weight_decay = 0;
};
using AllGroupSettings = std::array<GroupSettings, kNumParameterGroups>;

// Calls `update(from, to, settings)` for ranges that cover all segments once,
// on at::get_num_threads() threads. REQUIRES: segments in ascending order
// without overlap, inside [0, size).
void for_each_range(
    std::span<const Segment> segments, int64_t size,
    const AllGroupSettings& groups,
    const std::function<void(int64_t, int64_t, const GroupSettings&)>& update);

// Checks that two flat tensors have equal size and type.
inline void check_flat_pair(const char* name_a, const at::Tensor& a,
                            const char* name_b, const at::Tensor& b) {
  const bool alike = a.dim() == 1 && b.dim() == 1 && a.numel() == b.numel() &&
                     a.scalar_type() == b.scalar_type() && a.is_contiguous() &&
                     b.is_contiguous();
  HEADROOM_CHECK(alike, cat(std::string(name_a), " with ", a.numel(),
                            " elements and ", name_b, " with ", b.numel(),
                            " must be flat, of one size and one type"));
}

// SGD with Nesterov momentum over a flat buffer, in one pass over memory.
//
// Clipping, decay, momentum and update are one loop: parameter, gradient and
// momentum are read once. Nothing is allocated, because no operation may fail
// after the vote of a step. The arithmetic is that of PyTorch's
// SGD(nesterov=True) with dampening 0 (the form of Sutskever et al. 2013).
//
// Elements outside all segments (padding, frozen layers) are not changed.
// `first_step`: the momentum buffer is set to the gradient, and its old content
// is not read. REQUIRES: three flat CPU tensors of equal size, all float or all
// double; segments in ascending order without overlap, inside the tensors.
void sgd_step(const at::Tensor& parameters, const at::Tensor& gradients,
              const at::Tensor& momentum_buffer,
              std::span<const Segment> segments, const AllGroupSettings& groups,
              double momentum, double clip_coefficient, bool first_step);

// Settings of Adam and AdamW. One pass over memory computes
//
//   m = m + (1 - beta1)(g - m)      v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// Kingma and Ba, arXiv:1412.6980, in PyTorch's order of operations. Adam adds
// the decay to the gradient; AdamW decouples it, p *= 1 - lr * decay
// (Loshchilov and Hutter, arXiv:1711.05101). beta2 is 0.999 and eps 1e-8, as in
// YOLOv5.
struct AdamSettings {
  double beta1 = 0.9;
  int64_t step = 1;  // number of this step, from 1
  double clip_coefficient = 1;
  bool decoupled_decay = true;  // true: AdamW, false: Adam
};

// Elements outside all segments are not changed. REQUIRES: four flat CPU
// tensors of equal size, all float or all double; moments 0 before the first
// step; segments as in sgd_step; step >= 1.
void adam_step(const at::Tensor& parameters, const at::Tensor& gradients,
               const at::Tensor& first_moment, const at::Tensor& second_moment,
               std::span<const Segment> segments,
               const AllGroupSettings& groups, const AdamSettings& settings);

// The coefficients of one group, not yet rounded to the parameters' type.
kernels::AdamCoefficients<double> adam_coefficients(
    const GroupSettings& group, const AdamSettings& settings);

using configs::OptimizerKind;

// Names of the moment buffers in checkpoints; their number is
// configs::num_moments(kind).
std::vector<std::string> moment_names(OptimizerKind kind);

// Settings of one optimizer step.
struct OptimizerStep {
  AllGroupSettings groups;
  double momentum = 0;  // Adam's beta1, or SGD's momentum
  double clip_coefficient = 1;
  int64_t step = 1;  // number of this optimizer step, from 1
};

// Updates `parameters` and the moments in place; allocates nothing. REQUIRES:
// flat tensors of equal size and type, one moment per name.
void optimizer_step(OptimizerKind kind, const OptimizerStep& step,
                    const at::Tensor& parameters, const at::Tensor& gradients,
                    std::span<const at::Tensor> moments,
                    std::span<const Segment> segments);

// EMA: the averaged weights that are validated and saved.
//
//   average = d*average + (1 - d)*value,  d(t) = 0.9999*(1 - exp(-t/2000))
//
// t counts optimizer steps from 1. The average covers every floating-point
// state tensor, batch-norm statistics included, and starts as a copy of it.
// num_batches_tracked is not averaged.

double ema_decay(int64_t updates);

// Works in place; allocates nothing. `updates` includes this update. REQUIRES:
// two flat tensors of equal size and type; updates >= 1.
void ema_update(const at::Tensor& average, const at::Tensor& value,
                int64_t updates);

}  // namespace headroom::optim
