// StepCommit: how a step ends on this rank, once its gradient is complete.
//
//                  HostCommit                 DeviceCommit
//   used by        all other ranks            a rank without peers on a device
//   decided by     the vote of all ranks      the device's own norm, losses
//   state changes  after the vote             before the vote; in the captured
//                                             graph if there is one
//   the host       waits before the vote      reads the result afterwards
//
// The trainer makes the same four calls in each attempt at a step:
//
//   begin()             sets the arguments of the commit
//   numbers_in_graph()  packs them for each micro-batch that a graph runs
//   measure()           after backward: losses, norm, and whether the step is
//                       finite
//   finish()            after the vote: commits the step if it counts
//
// Ownership: borrows its arguments. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "parallel/data_parallel/vote.h"
#include "worker/step/cuda_graph_runner.h"
#include "worker/step/fault_injection.h"
#include "worker/step/step_reports.h"
#include "worker/step/training_state.h"

namespace headroom::step {

class StepCommit {
 public:
  // `faults`: null if no faults are injected.
  StepCommit(TrainingState& state, StepReports& reports,
             const FaultInjection* faults)
      : state_(state), reports_(reports), faults_(faults) {}
  virtual ~StepCommit() = default;

  // `planned`: the commit's arguments without the gradient norm. `loss_scale`:
  // the factor of the loss in backward, if the loss was scaled.
  void begin(const CommitArguments& planned, std::optional<double> loss_scale) {
    planned_ = planned;
    loss_scale_ = loss_scale;
  }
  // Packed arguments (device_state.h) for a graph that ends the step after the
  // backward of a micro-batch; undefined if graphs end no step.
  virtual at::Tensor numbers_in_graph(bool is_last) = 0;
  // Reports this rank's losses (`items`) and its share of the squared gradient
  // norm. The host waits for a device here.
  virtual data_parallel::Outcome measure(const at::Tensor& items) = 0;
  // Commits the step if all ranks voted `counts`. Returns whether the optimizer
  // stepped.
  virtual bool finish(const CommitArguments& arguments, bool counts) = 0;

 protected:
  void unscale_gradients() {
    if (loss_scale_) state_.unscale_gradients(*loss_scale_);
  }
  // --inject nan: the loss is treated as not finite.
  bool is_spoilt() const {
    return faults_ != nullptr && faults_->is_not_a_number();
  }

  TrainingState& state_;
  StepReports& reports_;
  CommitArguments planned_;

 private:
  const FaultInjection* faults_;
  std::optional<double> loss_scale_;
};

class HostCommit final : public StepCommit {
 public:
  using StepCommit::StepCommit;

  at::Tensor numbers_in_graph(bool) override { return {}; }
  data_parallel::Outcome measure(const at::Tensor& items) override;
  bool finish(const CommitArguments& arguments, bool counts) override;
};

class DeviceCommit final : public StepCommit {
 public:
  DeviceCommit(TrainingState& state, StepReports& reports,
               const FaultInjection* faults, const CudaGraphRunner* graphs)
      : StepCommit(state, reports, faults), graphs_(graphs) {}

  at::Tensor numbers_in_graph(bool is_last) override;
  data_parallel::Outcome measure(const at::Tensor& items) override;
  bool finish(const CommitArguments& arguments, bool counts) override;

 private:
  at::Tensor numbers();

  const CudaGraphRunner* graphs_;
  bool has_committed_ = false;  // whether the newest attempt was committed
};

}  // namespace headroom::step
