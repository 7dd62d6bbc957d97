// halo_rows: a map together with the rows around it that lie with other ranks.
//
// What a kernel that reaches beyond a rank's rows needs: how far it reaches,
// the rows themselves (once, also when a layer of the table is run again), and
// the way back of their gradients. The halo stays apart from the map, so that
// the map, which its producer keeps anyway, is not kept twice.
//
// REQUIRES everywhere: StepContext::halo is set; the thread that runs the step
// calls, in backward too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/base/layer_exchange.h"
#include "worker/model/step_context.h"

namespace headroom::model {

// Rows wanted above and below a rank's own.
struct HaloReach {
  int64_t top = 0;
  int64_t bottom = 0;
  bool is_empty() const { return top == 0 && bottom == 0; }
};

// A convolution makes the output rows [a/s, b/s) from input rows [a, b) of a
// rank, s the stride, a and b multiples of it. The first begins `padding` rows
// above a, the last ends kernel - stride - padding rows beyond b.
// REQUIRES: it divides a map exactly by its stride (checked).
HaloReach convolution_reach(int64_t kernel, int64_t stride, int64_t padding);

// The halo [N, C, top + bottom, W] of x, from the replay log where the layer is
// run again. Not tracked by autograd.
at::Tensor fetch_halo(const at::Tensor& x, const HaloReach& reach,
                      double beyond_edge, const StepContext& context);

// [N, C, top + H + bottom, W], channels-last: a copy.
at::Tensor join_halo(const at::Tensor& x, const at::Tensor& halo,
                     const HaloReach& reach);

// The gradient of x [N, C, H, W] from that of the joined map; what belongs to
// other ranks goes there, and theirs is added.
at::Tensor give_back_halo(const at::Tensor& djoined, const HaloReach& reach,
                          HaloExchange& exchange);

// fetch and join as one differentiable operation; keeps nothing for backward.
at::Tensor with_halo(const at::Tensor& x, const HaloReach& reach,
                     double beyond_edge, const StepContext& context);

}  // namespace headroom::model
