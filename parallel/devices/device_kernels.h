// DeviceKernels: the project's own kernels on a CUDA device, over tensors: the
// passes of batch norm + SiLU (worker/kernels/map_kernels.h), the rows of the
// loss (worker/kernels/loss_kernels.h), the optimizer, and augmentation.
// Threads, errors: as MapKernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "worker/kernels/element_math.h"
#include "worker/kernels/loss_kernels.h"
#include "worker/kernels/map_kernels.h"

namespace headroom::devices {

// A range of the flat buffer whose elements are updated with one parameter
// group's coefficients.
struct FlatBufferRange {
  int64_t offset = 0;  // in elements
  int64_t size = 0;
  int group = 0;
};

struct DeviceOptimizerStep {
  bool is_adam = false;  // Adam and AdamW; else SGD
  std::array<kernels::SgdCoefficients<double>, 3> sgd = {};
  std::array<kernels::AdamCoefficients<double>, 3> adam = {};
  double average_weight = 0;  // 1 - decay
  // One element on the device, of the flat buffer's type, that replaces the
  // coefficients' clip; undefined where theirs counts.
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

class DeviceKernels : public kernels::MapKernels, public kernels::LossKernels {
 public:
  virtual ~DeviceKernels() = default;

  // REQUIRES: ranges in ascending order without overlap, inside [0, size).
  virtual std::unique_ptr<DeviceOptimizer> make_optimizer(
      int device, std::span<const FlatBufferRange> ranges, int64_t size) = 0;

  // Renders images [n, rows, W, bands] from n packed samples
  // (worker/kernels/packed_sample.h), the i-th from byte starts[i] of `region`
  // on: the bytes that the CPU makes of them.
  // REQUIRES: dense uint8 on one device; samples as they were packed.
  virtual void render_samples(const at::Tensor& region,
                              std::span<const int64_t> starts,
                              const at::Tensor& images) = 0;
};

}  // namespace headroom::devices
