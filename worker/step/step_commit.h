// StepCommit: how a step ends on this rank, once its gradient is complete.
//
//                  HostCommit              DeviceCommit
//   used by        all other ranks         a rank alone on a device, and ranks
//                                          that split only the data and whose
//                                          devices sum their tensors (NCCL)
//   reports        summed by the hosts     summed by the devices, behind the
//                                          gradients
//   decided by     the vote of all ranks   each device, from equal sums:
//   losses,
//                                          objections, and its own norm of the
//                                          summed gradient
//   state changes  after the vote          in the stream, behind the decision;
//                                          of a rank alone also in its graph
//   the host       waits before the vote   reads the result afterwards
//
// The trainer makes the same five calls in each attempt at a step:
//
//   begin()             sets the arguments of the commit
//   numbers_in_graph()  packs them for each micro-batch that a graph runs
//   send()              after backward: sends this rank's reports
//   receive()           the reports then hold the sums of all ranks
//   finish()            commits the step if it counts
//
// Under DeviceCommit all work of a step is queued when send() returns, and more
// can be queued before receive() waits: the next step's inputs. The host reads
// each step's result before it starts the next step, not one step later. The
// step's line, the requests to stop, leave and save, and the memory ladder need
// the result, and a step that was begun on top of one that did not count would
// have to be undone. Reading early costs the time of one copy to the host and
// of starting the first kernels, as for a rank alone; votes between hosts,
// which grow with the ranks, are gone.
//
// A rank that runs out of memory does not send. It leaves the generation, and
// its peers' sums are aborted. A device whose sums were aborted must not commit
// what they left, so its decision reads Communicator::failure_word(). If a peer
// fails while the reports are summed, some devices may have committed and
// others not, as with hosts: a rank finds out what its own device did, and the
// next generation continues from the newest state.
//
// Ownership: borrows its arguments. Threads: the training thread. Errors:
// CommunicationError from send() and receive(); the step is then not committed
// on this rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "parallel/collectives/mesh.h"
#include "parallel/data_parallel/vote.h"
#include "worker/step/cuda_graph_runner.h"
#include "worker/step/fault_injection.h"
#include "worker/step/step_reports.h"
#include "worker/step/training_state.h"

namespace headroom::step {

class StepCommit {
 public:
  // `faults`: null if no faults are injected. `world`: all ranks of the step.
  StepCommit(TrainingState& state, StepReports& reports,
             const FaultInjection* faults, collectives::Communicator& world)
      : state_(state), reports_(reports), world_(world), faults_(faults) {}
  virtual ~StepCommit() = default;

  // `planned`: the commit's arguments without the gradient norm. `loss_scale`:
  // the factor of the loss in backward.
  void begin(const CommitArguments& planned, double loss_scale) {
    planned_ = planned;
    loss_scale_ = loss_scale;
  }
  // Packed arguments (device_state.h) for a graph that ends the step after the
  // backward of a micro-batch; undefined if graphs end no step.
  virtual at::Tensor numbers_in_graph(bool is_last) = 0;
  // What this rank's host found. Not finite because of --inject nan; otherwise
  // the reports say whether the losses are finite.
  data_parallel::Outcome outcome() const {
    return faults_ != nullptr && faults_->is_not_a_number()
               ? data_parallel::Outcome::kNonFinite
               : data_parallel::Outcome::kOk;
  }
  // Sends the reports, to which it adds this rank's `items` and share
  // of the squared gradient norm. `outcome`: as in the reports' ballot.
  virtual void send(const at::Tensor& items,
                    data_parallel::Outcome outcome) = 0;
  // The host waits here for the peers, or for the device.
  virtual void receive() = 0;
  // Commits the step if all ranks voted `counts`. Returns whether the optimizer
  // stepped.
  virtual bool finish(const CommitArguments& arguments, bool counts) = 0;

 protected:
  // `divisor`: of the gradients, on top of the loss scale.
  void unscale_gradients(double divisor = 1) {
    state_.unscale_gradients(loss_scale_ * divisor);
  }

  TrainingState& state_;
  StepReports& reports_;
  collectives::Communicator& world_;
  CommitArguments planned_;

 private:
  const FaultInjection* faults_;
  double loss_scale_ = 1;
};

class HostCommit final : public StepCommit {
 public:
  using StepCommit::StepCommit;

  at::Tensor numbers_in_graph(bool) override { return {}; }
  void send(const at::Tensor& items, data_parallel::Outcome outcome) override;
  void receive() override;
  bool finish(const CommitArguments& arguments, bool counts) override;

 private:
  double divisor(const at::Tensor& items);
};

class DeviceCommit final : public StepCommit {
 public:
  // Whether the ranks of `mesh` may use it; the same on all ranks.
  static bool can_decide(const TrainingState& state,
                         const collectives::Mesh& mesh);

  DeviceCommit(TrainingState& state, StepReports& reports,
               const FaultInjection* faults, collectives::Communicator& world,
               const CudaGraphRunner* graphs);

  at::Tensor numbers_in_graph(bool is_last) override;
  void send(const at::Tensor& items, data_parallel::Outcome outcome) override;
  void receive() override;
  bool finish(const CommitArguments& arguments, bool counts) override;

 private:
  bool is_alone() const { return !told_.defined(); }
  bool has_ended_in_graph() const {
    return graphs_ != nullptr && graphs_->has_ended_step();
  }
  at::Tensor numbers(data_parallel::Outcome outcome);

  const CudaGraphRunner* graphs_;
  // On the device, for several ranks: the reports and behind them the outcome,
  // so that one read gets both.
  at::Tensor told_, reports_in_told_, outcome_in_told_;
  // Of the newest attempt.
  std::shared_ptr<const int32_t> failure_word_;
  bool has_committed_ = false;
};

}  // namespace headroom::step
