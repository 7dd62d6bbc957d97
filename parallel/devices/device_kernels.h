// DeviceKernels: the project's own kernels on a CUDA device, over tensors.
//
// Batch norm + SiLU: maps [N, C, H, W] channels-last of float32, float64,
// bfloat16 or float16; groups are runs of samples, group_begins [groups + 1]
// from 0 to N. Weight, bias [C]: float32, float64 for a float64 map. Sums,
// statistics and means are [groups, 2, C] double on the device: statistics mean
// and inverse deviation. With n the normalised value, z = n * weight + bias and
// dz the gradient of z, the four calls are the passes of
// worker/model/kernels/batch_norm_silu.h.
//
// Everything is put on the device's current stream; nothing waits for it, and
// no tensor that the caller can reach is made but where said.
//
// Ownership: tensors stay the caller's.
// Threads: any; of one tensor as with LibTorch's own operators.
// Errors: HEADROOM_CHECK for shapes, types and devices; c10::Error from CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "parallel/base/element_math.h"

namespace headroom {

// A range of the arena whose elements one parameter group's coefficients move.
struct ArenaRange {
  int64_t offset = 0;  // in elements
  int64_t size = 0;
  int group = 0;
};

struct DeviceOptimizerStep {
  bool is_adam = false;  // Adam and AdamW; else SGD
  std::array<SgdCoefficients<double>, 3> sgd = {};
  std::array<AdamCoefficients<double>, 3> adam = {};
  double average_weight = 0;  // 1 - decay
  // One element on the device, of the arena's type, that takes the place of
  // the coefficients' clip; undefined: theirs counts.
  at::Tensor clip;
};

// Optimizer, clipping and EMA in one pass. Elements outside all ranges are
// averaged only.
class DeviceOptimizer {
 public:
  virtual ~DeviceOptimizer() = default;
  // REQUIRES: flat contiguous tensors of the size and on the device given when
  // it was made, all float32 or all float64. SGD's moment is `first`, `second`
  // undefined; `average` may be undefined.
  virtual void step(const DeviceOptimizerStep& step,
                    const at::Tensor& parameters, const at::Tensor& gradients,
                    const at::Tensor& first, const at::Tensor& second,
                    const at::Tensor& average) = 0;
};

class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  // Fills `sums` with those of y and of its square.
  virtual void channel_sums(const at::Tensor& y,
                            std::span<const int64_t> group_begins,
                            const at::Tensor& sums) = 0;

  // out = z * sigmoid(z); may be y.
  virtual void normalise_and_activate(const at::Tensor& y,
                                      std::span<const int64_t> group_begins,
                                      const at::Tensor& statistics,
                                      const at::Tensor& weight,
                                      const at::Tensor& bias,
                                      const at::Tensor& out) = 0;

  // Fills `sums` with those of dz and of dz * n. `dout` may be a slice of the
  // channels of a wider channels-last map.
  virtual void activation_gradient_sums(const at::Tensor& y,
                                        const at::Tensor& dout,
                                        std::span<const int64_t> group_begins,
                                        const at::Tensor& statistics,
                                        const at::Tensor& weight,
                                        const at::Tensor& bias,
                                        const at::Tensor& sums) = 0;

  // dy = weight * inverse_deviation * (dz - mean_dz - n * mean_dz_n), with dz
  // derived again from y and dout. `means` are the whole groups', or zeros for
  // fixed statistics. dy may be dout.
  virtual void norm_gradient(const at::Tensor& y, const at::Tensor& dout,
                             std::span<const int64_t> group_begins,
                             const at::Tensor& statistics,
                             const at::Tensor& weight, const at::Tensor& bias,
                             const at::Tensor& means, const at::Tensor& dy) = 0;

  // REQUIRES: ranges in ascending order without overlap, inside [0, size).
  virtual std::unique_ptr<DeviceOptimizer> make_optimizer(
      int device, std::span<const ArenaRange> ranges, int64_t size) = 0;
};

}  // namespace headroom
