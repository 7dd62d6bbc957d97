// MapKernels: the passes of batch norm and activation over a map, where it does
// not lie on the CPU.
//
// The model knows no CUDA; it is handed these (cpu/device_batch_norm.h), and
// the CUDA plugin has them (parallel/devices/device_kernels.h).
//
// Maps [N, C, H, W] channels-last of float32, float64, bfloat16 or float16;
// groups are runs of samples, group_begins [groups + 1] from 0 to N. Weight,
// bias [C]: float32, float64 for a float64 map. Sums, statistics and means are
// [groups, 2, C] double beside the map: statistics mean and inverse deviation.
// With n the normalised value, z = n * weight + bias, and dz the gradient of z.
//
// Work is put on the device's current stream; nothing waits for it.
//
// Errors: HEADROOM_CHECK for shapes, types and devices; c10::Error from the
// device.
#pragma once

#include <cstdint>
#include <span>

#include "configs/layers/layer_program.h"

namespace at {
class Tensor;
}

namespace headroom::kernels {

class MapKernels {
 public:
  // Fills `sums` with those of y and of its square.
  virtual void channel_sums(const at::Tensor& y,
                            std::span<const int64_t> group_begins,
                            const at::Tensor& sums) = 0;

  // out = activation(z); may be y.
  virtual void normalise_and_activate(
      const at::Tensor& y, std::span<const int64_t> group_begins,
      const at::Tensor& statistics, const at::Tensor& weight,
      const at::Tensor& bias, const layers::ActivationFunction& activation,
      const at::Tensor& out) = 0;

  // Fills `sums` with those of dz and of dz * n. `dout` may be a slice of the
  // channels of a wider channels-last map.
  virtual void activation_gradient_sums(
      const at::Tensor& y, const at::Tensor& dout,
      std::span<const int64_t> group_begins, const at::Tensor& statistics,
      const at::Tensor& weight, const at::Tensor& bias,
      const layers::ActivationFunction& activation, const at::Tensor& sums) = 0;

  // dy = weight * inverse_deviation * (dz - mean_dz - n * mean_dz_n), with dz
  // derived again from y and dout. `means` are the whole groups', or zeros for
  // fixed statistics. dy may be dout.
  virtual void norm_gradient(const at::Tensor& y, const at::Tensor& dout,
                             std::span<const int64_t> group_begins,
                             const at::Tensor& statistics,
                             const at::Tensor& weight, const at::Tensor& bias,
                             const layers::ActivationFunction& activation,
                             const at::Tensor& means, const at::Tensor& dy) = 0;

 protected:
  ~MapKernels() = default;  // nobody owns them through this
};

}  // namespace headroom::kernels
