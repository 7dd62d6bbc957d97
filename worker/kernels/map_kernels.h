// MapKernels: the passes of batch norm and activation over a map, and others,
// where it does not lie on the CPU.
//
// The model knows no CUDA; it is handed these (cpu/device_batch_norm.h), and
// the CUDA plugin has them (parallel/devices/device_kernels.h).
//
// Maps [N, C, H, W] channels-last of float32, float64, bfloat16 or float16;
// groups are runs of samples that follow one another from 0 to N. Weight, bias
// [C] and their gradients: float32, float64 for a float64 map. Sums, statistics
// and means are [groups, 2, C] double beside the map: statistics mean and
// inverse deviation. With n the normalised value, z = n * weight + bias, and dz
// the gradient of z.
//
// What follows from sums is written by the passes themselves, so that no
// operator works on a few values per channel. Only where ranks add up a group's
// sums do these come out, and go in again.
//
// Work is put on the device's current stream; nothing waits for it.
//
// Errors: HEADROOM_CHECK for shapes, types and devices; c10::Error from the
// device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "configs/layers/layer_program.h"

namespace headroom::kernels {

struct MapGroup {
  int64_t end = 0;          // its last sample's successor; it begins where the
                            // group before it ends
  double values = 0;        // values per channel, over all ranks
  bool counts_here = true;  // it moves the running statistics
};
using MapGroups = std::span<const MapGroup>;

// The targets of statistics: `running` [2 * C] double, unless undefined, is
// added the mean and the unbiased variance of each group that counts here.
struct StatisticsResult {
  at::Tensor statistics;
  at::Tensor running;
};

// The targets of a map's gradient sums. Weight's and bias's gradients are over
// this map's groups, whatever other ranks have.
struct GradientSumsResult {
  at::Tensor weight_gradient;
  at::Tensor bias_gradient;
  at::Tensor sums;   // sums of dz and of dz * n; undefined: not wanted
  at::Tensor means;  // the sums / values; undefined: not wanted
  bool adds_gradients = false;  // adds to what the two hold
};

class MapKernels {
 public:
  // Fills `sums` with those of y and of its square.
  virtual void channel_sums(const at::Tensor& y, MapGroups groups,
                            const at::Tensor& sums) = 0;

  virtual void batch_statistics(const at::Tensor& y, MapGroups groups,
                                double epsilon,
                                const StatisticsResult& result) = 0;
  // The same from channel_sums, which ranks may have added up.
  virtual void statistics_of_sums(const at::Tensor& sums, MapGroups groups,
                                  double epsilon,
                                  const StatisticsResult& result) = 0;

  // out = activation(z); may be y.
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
  // Sums of whole groups become their means; may be the same tensor.
  virtual void means_of_sums(const at::Tensor& sums, MapGroups groups,
                             const at::Tensor& means) = 0;

  // dy = weight * inverse_deviation * (dz - mean_dz - n * mean_dz_n), with dz
  // derived again from y and dout. `means` are the whole groups'; undefined:
  // zeros, for fixed statistics. dy may be dout.
  virtual void norm_gradient(const at::Tensor& y, const at::Tensor& dout,
                             MapGroups groups, const at::Tensor& statistics,
                             const at::Tensor& weight, const at::Tensor& bias,
                             const layers::ActivationFunction& activation,
                             const at::Tensor& means, const at::Tensor& dy) = 0;

  // Max pooling of x [N, C, H, W] with a stride of 1 and windows of `window` x
  // `window` cells, odd and at most 15: out [N, C, H', W] lacks as many rows
  // above as below, up to window / 2 each. Cells beyond x are lower than
  // everything. `choices`, bytes of out's shape, get the number of each
  // window's largest cell, row by row: of several the one that LibTorch chooses
  // on the CPU. Undefined: not wanted.
  virtual void max_pool(const at::Tensor& x, int64_t window,
                        const at::Tensor& out, const at::Tensor& choices) = 0;
  // dx from out's gradient, which may be a slice of the channels of a wider
  // channels-last map: each cell's windows are added in their order.
  virtual void max_pool_gradient(const at::Tensor& dout,
                                 const at::Tensor& choices, int64_t window,
                                 const at::Tensor& dx) = 0;

  // What the network reads of loaded images [N, H, W, C], uint8 or uint16: each
  // / the largest level, divided in float32, as a map [N, C, H, W] of any of
  // the types.
  virtual void scale_images(const at::Tensor& images,
                            const at::Tensor& input) = 0;

 protected:
  ~MapKernels() = default;  // nobody owns them through this
};

}  // namespace headroom::kernels
