// DeviceState: what a step's vote and commit do on a device, where the CPU's
// loops cannot reach: the gradient's norm, the running statistics, and the
// optimizer's settings as the device's kernel takes them.
//
// Its scratch memory is allocated at the start, so that a commit allocates
// nothing on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "parallel/data_parallel/flat_buffer.h"
#include "parallel/devices/compute_device.h"
#include "worker/model/layer_graph.h"
#include "worker/optim/optimizer.h"

namespace headroom::step {

class DeviceState {
 public:
  // `statistics`: the flat buffer of the model's running statistics.
  DeviceState(const devices::ComputeDevice& device, model::LayerGraph& model,
              const data_parallel::FlatBuffer& statistics);

  // The squared L2 norm of a + b over all pairs since begin_norm(), in double.
  void begin_norm();
  void add_norm(const at::Tensor& a, const at::Tensor& b);
  double norm() const;  // the host waits

  // running = (1 - momentum) * running + momentum * sum / num_groups, with the
  // CPU's roundings.
  void move_running_statistics(const at::Tensor& statistics,
                               const at::Tensor& batch_norm_sums,
                               int64_t num_groups);

 private:
  at::Tensor norm_;     // [], double
  at::Tensor scratch_;  // flat
  // For each element of the statistics its place among the sums. Padding has
  // the first one's and is never read.
  at::Tensor places_;
  // The step's means and the new running statistics, both in double.
  at::Tensor means_, moved_;
};

// The optimizer of `size` elements, which the segments part; null on the CPU.
std::unique_ptr<devices::DeviceOptimizer> device_optimizer(
    const devices::ComputeDevice& device,
    std::span<const optim::Segment> segments, int64_t size);
devices::DeviceOptimizerStep device_optimizer_step(
    optim::OptimizerKind kind, const optim::OptimizerStep& step);

}  // namespace headroom::step
