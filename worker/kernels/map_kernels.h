// MapKernels: the passes of batch norm and activation, and other operations on
// maps, for maps that are not on the CPU.
//
// The model contains no CUDA code; it uses this interface
// (cpu/device_batch_norm.h), which the CUDA plugin implements
// (parallel/devices/device_kernels.h).
//
// Maps are [N, C, H, W] channels-last, float32, float64, bfloat16 or float16.
// Groups are consecutive ranges of samples that cover 0 to N. Weight, bias [C]
// and their gradients are float32, or float64 for a float64 map. Sums,
// statistics and means are [groups, 2, C] double on the same device; statistics
// are mean and inverse deviation. n is the normalised value, z = n * weight +
// bias, and dz is the gradient of z.
//
// The passes themselves compute everything that follows from the sums, so that
// no operator runs on a few values per channel. Only if a group's sums are
// added over ranks are they returned and passed in again.
//
// Work is queued on the device's current stream; nothing waits for it.
//
// Errors: HEADROOM_CHECK for shapes, types, devices; c10::Error from the
// device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "configs/layers/layer_program.h"

namespace headroom::kernels {

struct MapGroup {
  // end of its samples; it begins at the end of the previous group
  int64_t end = 0;
  double values = 0;        // number of values per channel, over all ranks
  bool counts_here = true;  // it updates the running statistics
};
using MapGroups = std::span<const MapGroup>;

// Outputs of the statistics. If `running` ([2 * C] double) is defined, the mean
// and unbiased variance of each group with counts_here are added to it.
struct StatisticsResult {
  at::Tensor statistics;
  at::Tensor running;
};

// Outputs of a map's gradient sums. The gradients of weight and bias are over
// this map's groups only, not over other ranks.
struct GradientSumsResult {
  at::Tensor weight_gradient;
  at::Tensor bias_gradient;
  at::Tensor sums;              // of dz and of dz * n; undefined if not wanted
  at::Tensor means;             // sums / values; undefined if not wanted
  bool adds_gradients = false;  // true: add to the two gradients
};

class MapKernels {
 public:
  // Sets `sums` to the sums of y and of its square.
  virtual void channel_sums(const at::Tensor& y, MapGroups groups,
                            const at::Tensor& sums) = 0;

  virtual void batch_statistics(const at::Tensor& y, MapGroups groups,
                                double epsilon,
                                const StatisticsResult& result) = 0;
  // Computes the statistics from the sums of channel_sums(), which may have
  // been added over ranks.
  virtual void statistics_of_sums(const at::Tensor& sums, MapGroups groups,
                                  double epsilon,
                                  const StatisticsResult& result) = 0;

  // out = activation(z); out may be y.
  virtual void normalise_and_activate(
      const at::Tensor& y, MapGroups groups, const at::Tensor& statistics,
      const at::Tensor& weight, const at::Tensor& bias,
      const layers::ActivationFunction& activation, const at::Tensor& out) = 0;

  // `dout` may be a slice of the channels of a wider channels-last map.
  virtual void activation_gradient_sums(
      const at::Tensor& y, const at::Tensor& dout, MapGroups groups,
      const at::Tensor& statistics, const at::Tensor& weight,
      const at::Tensor& bias, const layers::ActivationFunction& activation,
      const GradientSumsResult& result) = 0;
  // Divides the sums of whole groups by their number of values. Both arguments
  // may be the same tensor.
  virtual void means_of_sums(const at::Tensor& sums, MapGroups groups,
                             const at::Tensor& means) = 0;

  // dy = weight * inverse_deviation * (dz - mean_dz - n * mean_dz_n), where dz
  // is computed again from y and dout. `means` are those of whole groups;
  // undefined means zeros, for fixed statistics. dy may be dout.
  virtual void norm_gradient(const at::Tensor& y, const at::Tensor& dout,
                             MapGroups groups, const at::Tensor& statistics,
                             const at::Tensor& weight, const at::Tensor& bias,
                             const layers::ActivationFunction& activation,
                             const at::Tensor& means, const at::Tensor& dy) = 0;

  // Max pooling of x [N, C, H, W] with stride 1 and odd windows of `window` x
  // `window` cells, at most 15. out is [N, C, H', W]; it lacks the same number
  // of rows above and below, up to window / 2 each. Cells beyond x count as
  // minus infinity. `choices` (bytes, out's shape) is set to the position of
  // each window's largest cell, counted row by row; at ties it is the one that
  // LibTorch chooses on the CPU. Undefined if not wanted.
  virtual void max_pool(const at::Tensor& x, int64_t window,
                        const at::Tensor& out, const at::Tensor& choices) = 0;
  // Computes dx from out's gradient, which may be a slice of the channels of a
  // wider channels-last map. A cell adds its windows in order.
  virtual void max_pool_gradient(const at::Tensor& dout,
                                 const at::Tensor& choices, int64_t window,
                                 const at::Tensor& dx) = 0;

  // Converts loaded images [N, H, W, C], uint8 or uint16, to the network's
  // input [N, C, H, W] of any map type: value / largest level, in float32.
  virtual void scale_images(const at::Tensor& images,
                            const at::Tensor& input) = 0;

 protected:
  ~MapKernels() = default;  // never deleted through this type
};

}  // namespace headroom::kernels
