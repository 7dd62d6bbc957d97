// DeviceState: the end of a step on a device, where the CPU's loops cannot
// reach: the gradient's norm, whether the step counts, the optimizer and the
// running statistics (worker/kernels/commit_numbers.h).
//
//   measure()   norm and decision
//   apply()     the commit, where the outcome says so
//   outcome()   what came of it; the host waits here alone
//
// Where one rank trains alone the three follow each other, the first two as
// part of a captured graph, too: the device decides, and a step that is not
// finite changes nothing. Where several vote, the host tells the outcome
// between them (commit_as_voted()).
//
// All it needs is allocated at the start: measure() and apply() allocate
// nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parallel/data_parallel/flat_buffer.h"
#include "parallel/devices/compute_device.h"
#include "worker/model/layer_graph.h"
#include "worker/optim/optimizer.h"

namespace headroom::step {

class DeviceState {
 public:
  // One range of everything that the optimizer moves together.
  struct Piece {
    devices::FlatBuffers buffers;
    std::vector<optim::Segment> segments;
  };
  // `statistics`: the flat buffer of the model's running statistics, of which
  // `average` is the average. `sums`: StepContext's. All of it stays where it
  // is.
  DeviceState(const devices::ComputeDevice& device, model::LayerGraph& model,
              const data_parallel::FlatBuffer& statistics,
              const at::Tensor& average, const at::Tensor& sums,
              std::span<const Piece> pieces);

  // Packs the numbers on the host; `step` counts only if
  // numbers.steps_optimizer.
  static at::Tensor packed(kernels::CommitNumbers numbers,
                           optim::OptimizerKind kind,
                           const optim::OptimizerStep& step);
  static at::Tensor no_end() {
    return packed(kernels::CommitNumbers(), optim::OptimizerKind::kSgd,
                  optim::OptimizerStep());
  }

  // `numbers`: packed(), on the device. `items`: double [3], there; undefined:
  // zeros.
  void measure(const at::Tensor& numbers, const at::Tensor& items);
  void apply(const at::Tensor& numbers);
  kernels::CommitOutcome outcome() const;
  void commit_as_voted(double clip);

 private:
  struct OwnPiece {
    devices::FlatBuffers buffers;
    std::unique_ptr<devices::DeviceOptimizer> optimizer;
    at::Tensor partial;
  };

  const devices::ComputeDevice device_;
  std::vector<OwnPiece> pieces_;
  devices::RunningStatistics running_;
  at::Tensor partial_, no_items_, outcome_;
};

}  // namespace headroom::step
