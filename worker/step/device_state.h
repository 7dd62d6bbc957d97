// DeviceState: kernels that end a step on a device: gradient norm, decision
// whether the step counts, optimizer, running statistics
// (worker/kernels/commit_numbers.h).
//
//   measure()   norm and decision
//   apply()     the commit, if the step counts
//   outcome()   the decision, for the host to read
//
// A device that decides runs them in this order; the first two may be in a
// captured graph. A step that is not finite then changes nothing. If the hosts
// of the ranks vote, the host writes their decision before apply()
// (commit_as_voted()).
//
// The constructor allocates everything; measure() and apply() allocate nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/data_parallel/flat_buffer.h"
#include "parallel/devices/compute_device.h"
#include "worker/model/layer_graph.h"
#include "worker/optim/optimizer.h"

namespace headroom::step {

class DeviceState {
 public:
  // One range, in each of the buffers that an optimizer step changes.
  struct Piece {
    kernels::FlatBuffers buffers;
    // The trained parts, by parameter group; offsets within the piece.
    std::vector<optim::Segment> segments;
  };
  // `statistics`: the model's running statistics; `average`: their average.
  // `sums`: StepContext::batch_norm_sums. None of them may be reallocated.
  DeviceState(const devices::ComputeDevice& device, model::LayerGraph& model,
              const data_parallel::FlatBuffer& statistics,
              const at::Tensor& average, const at::Tensor& sums,
              std::span<const Piece> pieces);

  // Returns the bytes of a CommitNumbers, on the host. `step` is used only if
  // numbers.steps_optimizer.
  static at::Tensor packed(kernels::CommitNumbers numbers,
                           optim::OptimizerKind kind,
                           const optim::OptimizerStep& step);
  static at::Tensor no_end() {
    return packed(kernels::CommitNumbers(), optim::OptimizerKind::kSgd,
                  optim::OptimizerStep());
  }

  // Copies packed() into the device's buffer for it, and returns that.
  const at::Tensor& upload(const at::Tensor& packed);

  // What the devices of several ranks decide with, besides the losses; empty
  // for a rank alone. As in kernels::CommitPlace.
  struct Peers {
    at::Tensor objections;
    const int32_t* failure_word;
  };
  // `numbers`: as returned by upload(), or another copy. `items`: the loss
  // items, double [kStepItems] on the device, summed over the ranks; undefined
  // means zeros.
  void measure(const at::Tensor& numbers, const at::Tensor& items,
               const Peers& peers = {});
  void apply(const at::Tensor& numbers);
  // A kernels::CommitOutcome as doubles, on the device.
  const at::Tensor& outcome() const { return outcome_; }
  // Reads one; the host waits for a device.
  static kernels::CommitOutcome outcome_of(const at::Tensor& doubles);
  void commit_as_voted(double clip);

 private:
  struct OwnPiece {
    kernels::FlatBuffers buffers;
    at::Tensor partial;
  };

  const devices::ComputeDevice device_;
  std::vector<OwnPiece> pieces_;
  kernels::RunningStatistics running_;
  at::Tensor numbers_, partial_, no_items_, outcome_;
};

}  // namespace headroom::step
