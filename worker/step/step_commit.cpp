#include "worker/step/step_commit.h"

#include "parallel/base/check.h"

namespace headroom::step {

using data_parallel::Outcome;

Outcome HostCommit::measure(const at::Tensor& items) {
  unscale_gradients();
  reports_.set_losses(items);
  reports_.set_squared_norm_share(state_.squared_norm_share());
  return reports_.losses().is_finite() && !is_spoilt() ? Outcome::kOk
                                                       : Outcome::kNonFinite;
}

bool HostCommit::finish(const CommitArguments& arguments, bool counts) {
  return counts && state_.commit(arguments);
}

at::Tensor DeviceCommit::numbers() {
  // Waits until the checkpoint copy of the current state is finished.
  state_.before_change();
  unscale_gradients();
  return state_.commit_numbers(planned_, !is_spoilt());
}

at::Tensor DeviceCommit::numbers_in_graph(bool is_last) {
  return is_last ? numbers() : DeviceState::no_end();
}

Outcome DeviceCommit::measure(const at::Tensor& items) {
  if (graphs_ == nullptr || !graphs_->has_ended_step()) {
    state_.end_on_device(state_.device().upload(numbers()), items);
  }
  const kernels::CommitOutcome found = state_.device_state()->outcome();
  reports_.set_losses(found.items);
  reports_.set_squared_norm_share(found.squared_norm);
  has_committed_ = found.commits != 0;
  return has_committed_ ? Outcome::kOk : Outcome::kNonFinite;
}

bool DeviceCommit::finish(const CommitArguments& arguments, bool counts) {
  HEADROOM_CHECK(counts == has_committed_,
                 "the device and the vote do not agree");
  return counts && state_.note_commit(arguments);
}

}  // namespace headroom::step
