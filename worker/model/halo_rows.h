// halo_rows: a map together with rows around it that other ranks hold.
//
// For a kernel that reads beyond a rank's rows, these functions compute how far
// the kernel reaches, fetch the rows (only once, even if the layer is run
// again), and send the gradients of the rows back. The halo is stored apart
// from the map, so that the map, which its producer keeps anyway, is not stored
// twice.
//
// REQUIRES for all functions: StepContext::halo is set; called from the thread
// that runs the step, in backward too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/base/layer_exchange.h"
#include "worker/model/step_context.h"

namespace headroom::model {

// Number of rows that are needed above and below the rank's own rows.
struct HaloReach {
  int64_t top = 0;
  int64_t bottom = 0;
  bool is_empty() const { return top == 0 && bottom == 0; }
};

// A convolution computes output rows [a/s, b/s) from a rank's input rows [a,
// b), where s is the stride and a and b are multiples of it. The first output
// row starts `padding` rows above a; the last ends kernel - stride - padding
// rows below b. REQUIRES: the convolution divides a map exactly by its stride
// (checked).
HaloReach convolution_reach(int64_t kernel, int64_t stride, int64_t padding);

// Fetches the halo [N, C, top + bottom, W] of x; from the replay log if the
// layer is run again. Not tracked by autograd.
at::Tensor fetch_halo(const at::Tensor& x, const HaloReach& reach,
                      double beyond_edge, const StepContext& context);

// Returns [N, C, top + H + bottom, W], channels-last; makes a copy.
at::Tensor join_halo(const at::Tensor& x, const at::Tensor& halo,
                     const HaloReach& reach);

// Returns the gradient of x [N, C, H, W] from the gradient of the joined map.
// Sends the gradients of other ranks' rows to these ranks, and adds the
// gradients of this rank's rows that other ranks send.
at::Tensor give_back_halo(const at::Tensor& djoined, const HaloReach& reach,
                          HaloExchange& exchange);

// Fetches and joins the halo as one differentiable operation, which saves no
// tensor for backward.
at::Tensor with_halo(const at::Tensor& x, const HaloReach& reach,
                     double beyond_edge, const StepContext& context);

}  // namespace headroom::model
