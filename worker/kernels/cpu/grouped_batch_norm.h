// grouped_batch_norm: batch norm and activation of a map whose samples form
// groups; forward and backward, without autograd.
//
// If groups span ranks, their sums are added over these ranks by one call of
// the exchange: [sum, sum of squares] in forward, [sum dz, sum dz * n] in
// backward. Here n is the normalised value, z the scaled and shifted value, and
// dz the gradient of z. Sums and statistics are in double.
//
// Shapes: maps [N, C, H, W] channels-last, N may be 0; statistics [groups, 2,
// C], double: mean and inverse deviation. Maps are float32, float64, bfloat16
// or float16; for 16-bit maps the affine parameters are float32. A map on a
// device uses device_batch_norm.h; the other tensors are then on the device
// too. Functions are reentrant and use ATen's thread pool.
//
// Errors: HEADROOM_CHECK fails for groups that do not cover the samples, for
// fewer than two values per channel, and for other element types;
// CommunicationError from the exchange.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "configs/layers/activation.h"
#include "parallel/base/layer_exchange.h"

namespace headroom::kernels {

struct GroupedBatchNorm {
  std::vector<BatchNormGroup> groups;
  StatisticsExchange* exchange = nullptr;
  // Running statistics do not depend on the samples: no gradient flows through
  // them, and nothing is exchanged.
  bool fixed_statistics = false;
  // Height of the whole map if its rows are split over ranks; 0 if all rows are
  // on this rank. A group's numbers of values and samples are global.
  int64_t global_rows = 0;
  layers::ActivationFunction activation = {};
};

// Number of values per channel in a whole group, over all ranks and rows.
double values_per_channel(const GroupedBatchNorm& norm, size_t group,
                          const at::Tensor& map);

// Returns the statistics of y's groups. If `batch_norm_sums` ([2 * C], double)
// is defined, adds the mean and unbiased variance of every group with
// counts_here to it.
at::Tensor batch_statistics(const at::Tensor& y, const GroupedBatchNorm& norm,
                            double epsilon, const at::Tensor& batch_norm_sums);

// Returns the statistics of one group, from running statistics.
at::Tensor running_statistics(const at::Tensor& running_mean,
                              const at::Tensor& running_var, double epsilon);

at::Tensor normalise_and_activate(const at::Tensor& y,
                                  const at::Tensor& statistics,
                                  const at::Tensor& norm_weight,
                                  const at::Tensor& norm_bias,
                                  const GroupedBatchNorm& norm);

struct GroupedBatchNormGradients {
  at::Tensor dy;
  // This rank's contribution; it is summed over ranks with all other gradients.
  // Undefined if it was added to AffineGradients.
  at::Tensor dnorm_weight;
  at::Tensor dnorm_bias;
};

// Gradients to which a device's kernels add the gradients of the affine
// parameters. If undefined, new tensors are returned.
struct AffineGradients {
  at::Tensor weight, bias;
};

// `dout` is moved in: if nothing else refers to its memory, dy is written into
// it. It may be a slice of a wider map, as after a concatenation.
GroupedBatchNormGradients grouped_batch_norm_gradients(
    at::Tensor dout, const at::Tensor& y, const at::Tensor& statistics,
    const at::Tensor& norm_weight, const at::Tensor& norm_bias,
    const GroupedBatchNorm& norm, const AffineGradients& added_to = {});

// Returns the map itself if it is channels-last or a slice of the channels of
// such a map; else a channels-last copy.
at::Tensor slice_of_pixels(const at::Tensor& map);

// GradientBuffers: an incoming gradient and the buffer for the outgoing one.
//
// Both use the same memory if nothing else refers to it. This saves an
// allocation, and reading every cache line before it is overwritten. Autograd
// may pass one gradient to several consumers (an addition passes the same
// gradient to both of its inputs), so the reference counts of the tensor and of
// its storage are checked.
struct GradientBuffers {
  // REQUIRES: `incoming` [N, C, H, W], moved in. A slice of the channels of a
  // channels-last map is read in place; any other layout is copied.
  explicit GradientBuffers(at::Tensor incoming);

  at::Tensor source;
  int64_t pixel_stride = 0;  // elements between two adjacent pixels of source
  at::Tensor target;         // channels-last; may be source
};

}  // namespace headroom::kernels
