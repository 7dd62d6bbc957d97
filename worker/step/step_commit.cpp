#include "worker/step/step_commit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"

namespace headroom::step {

using data_parallel::Outcome;

void HostCommit::send(const at::Tensor& items, Outcome) {
  unscale_gradients(divisor(items));
  reports_.set_items(items);
  reports_.set_squared_norm_share(state_.squared_norm_share());
}

// The norm needs the divisor, so the ranks sum it before their reports.
double HostCommit::divisor(const at::Tensor& items) {
  if (state_.model().has_anchors()) return 1;
  const at::Tensor summed = items.cpu().clone();
  world_.all_reduce(summed);
  return kernels::divisor_of(summed.const_data_ptr<double>());
}

void HostCommit::receive() { reports_.all_reduce(world_); }

bool HostCommit::finish(const CommitArguments& arguments, bool counts) {
  return counts && state_.commit(arguments);
}

bool DeviceCommit::can_decide(const TrainingState& state,
                              const collectives::Mesh& mesh) {
  if (state.device().is_cpu()) return false;
  if (mesh.world.size() == 1) return true;
  return state.is_whole() && mesh.layout.spatial_parallel_size == 1 &&
         mesh.world.failure_word() != nullptr;
}

DeviceCommit::DeviceCommit(TrainingState& state, StepReports& reports,
                           const FaultInjection* faults,
                           collectives::Communicator& world,
                           const CudaGraphRunner* graphs)
    : StepCommit(state, reports, faults, world), graphs_(graphs) {
  if (world.size() == 1) return;
  const MemoryCategoryScope scope(MemoryCategory::kWorkspace);
  const int64_t num_reports = reports.values().numel();
  told_ = at::zeros({num_reports + kernels::kOutcomeDoubles},
                    state.device().options(at::kDouble));
  reports_in_told_ = told_.narrow(0, 0, num_reports);
  outcome_in_told_ = told_.narrow(0, num_reports, kernels::kOutcomeDoubles);
}

at::Tensor DeviceCommit::numbers(Outcome outcome) {
  // Waits until the checkpoint copy of the current state is finished.
  state_.before_change();
  unscale_gradients();
  return state_.commit_numbers(planned_, outcome == Outcome::kOk);
}

at::Tensor DeviceCommit::numbers_in_graph(bool is_last) {
  if (!is_alone()) return {};
  return is_last ? numbers(outcome()) : DeviceState::no_end();
}

void DeviceCommit::send(const at::Tensor& items, Outcome outcome) {
  if (has_ended_in_graph()) return;
  const at::NoGradGuard no_grad;
  const devices::ComputeDevice& device = state_.device();
  const at::Tensor& packed = state_.device_state()->upload(numbers(outcome));
  if (is_alone()) return state_.end_on_device(packed, items);
  device.upload_into(reports_.values(), reports_in_told_);
  reports_.set_items_in(reports_in_told_, items);
  failure_word_ = world_.failure_word();
  world_.all_reduce(reports_in_told_);
  state_.end_on_device(
      packed, StepReports::items_in(reports_in_told_),
      {StepReports::objections_in(reports_in_told_), failure_word_.get()});
  outcome_in_told_.copy_(state_.device_state()->outcome());
}

void DeviceCommit::receive() {
  kernels::CommitOutcome found;
  if (is_alone()) {
    found = DeviceState::outcome_of(state_.device_state()->outcome());
    reports_.set_items(found.items);
  } else {
    const at::Tensor told = told_.cpu();
    const int64_t num_reports = reports_in_told_.numel();
    found = DeviceState::outcome_of(
        told.narrow(0, num_reports, kernels::kOutcomeDoubles));
    if (found.is_complete == 0) {
      world_.check();  // throws the reason
      HEADROOM_CHECK(false, "a sum over the devices failed without a reason");
    }
    reports_.take(told.narrow(0, 0, num_reports));
  }
  reports_.set_squared_norm_share(found.squared_norm);
  has_committed_ = found.commits != 0;
}

bool DeviceCommit::finish(const CommitArguments& arguments, bool counts) {
  HEADROOM_CHECK(counts == has_committed_,
                 "the device and the vote do not agree");
  return counts && state_.note_commit(arguments);
}

}  // namespace headroom::step
