// grouped_batch_norm: batch norm and activation of a map whose samples form
// groups, forward and backward, without autograd.
//
// A group that spans ranks adds its sums through the exchange, all groups in
// one call: forward [sum, sum of squares], backward [sum dz, sum dz * n] with
// z the normalised, scaled and shifted value, n the normalised one and dz the
// gradient of z. Sums and statistics are in double.
//
// Shapes: maps [N, C, H, W] channels-last, N may be 0; statistics [groups, 2,
// C], double: mean and inverse deviation. Maps are float32, float64, bfloat16
// or float16; the affine parameters of maps of 16 bits are float32. A map on a
// device, and all that belongs to it there, goes through device_batch_norm.h.
// Functions are reentrant and use ATen's thread pool.
// Errors: HEADROOM_CHECK for groups that do not tile the samples, for fewer
// than two values per channel, and for other element types;
// CommunicationError from the exchange.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "configs/layers/layer_program.h"
#include "parallel/base/layer_exchange.h"

namespace headroom::kernels {

struct GroupedBatchNorm {
  std::vector<BatchNormGroup> groups;
  StatisticsExchange* exchange = nullptr;
  // Running statistics do not depend on the samples: no gradient goes through
  // them, and nothing is exchanged.
  bool fixed_statistics = false;
  // Height of the whole map where its rows are split over ranks; 0: all are
  // here. A group's count of values is global, like its samples.
  int64_t global_rows = 0;
  layers::ActivationFunction activation = {};
};

// Values of each channel in a whole group: over all ranks and rows.
double values_per_channel(const GroupedBatchNorm& norm, size_t group,
                          const at::Tensor& map);

// Statistics of y's samples. Where `batch_norm_sums` [2 * C] double is defined,
// adds mean and unbiased variance of every group that counts here to it.
at::Tensor batch_statistics(const at::Tensor& y, const GroupedBatchNorm& norm,
                            double epsilon, const at::Tensor& batch_norm_sums);

// The statistics of one group, made from running statistics.
at::Tensor running_statistics(const at::Tensor& running_mean,
                              const at::Tensor& running_var, double epsilon);

at::Tensor normalise_and_activate(const at::Tensor& y,
                                  const at::Tensor& statistics,
                                  const at::Tensor& norm_weight,
                                  const at::Tensor& norm_bias,
                                  const GroupedBatchNorm& norm);

struct GroupedBatchNormGradients {
  at::Tensor dy;
  // This rank's part: they are added up over ranks with all other gradients.
  // Undefined where they were added to others.
  at::Tensor dnorm_weight;
  at::Tensor dnorm_bias;
};

// Gradients to which a device's kernels add those of the affine parameters;
// undefined: they are made anew.
struct AffineGradients {
  at::Tensor weight, bias;
};

// `dout` is given away: where nobody else holds its memory, dy is written into
// it. It may be a slice of a wider map, as behind a concatenation.
GroupedBatchNormGradients grouped_batch_norm_gradients(
    at::Tensor dout, const at::Tensor& y, const at::Tensor& statistics,
    const at::Tensor& norm_weight, const at::Tensor& norm_bias,
    const GroupedBatchNorm& norm, const AffineGradients& added_to = {});

// The map where it is channels-last, or a slice of the channels of such a map;
// one of another layout becomes a channels-last copy.
at::Tensor slice_of_pixels(const at::Tensor& map);

// GradientBuffers: an incoming gradient and what it is turned into.
//
// The same memory where nobody else can see it: that saves an allocation, and
// the reading of every cache line before it is overwritten. Autograd hands a
// gradient on to several consumers (an addition sends the same one both ways),
// so reference counts of the tensor and of its memory decide.
struct GradientBuffers {
  // REQUIRES: `incoming` [N, C, H, W], moved in. A slice of the channels of a
  // channels-last map is read where it lies; any other layout is copied.
  explicit GradientBuffers(at::Tensor incoming);

  at::Tensor source;
  int64_t pixel_stride = 0;  // elements from one pixel of source to the next
  at::Tensor target;         // channels-last; may be source
};

}  // namespace headroom::kernels
