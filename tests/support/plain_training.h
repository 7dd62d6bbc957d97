// PlainTraining: one process that trains with LibTorch's operators and plain
// autograd. It has the same input, loss, optimizer and weight average as
// RankTraining, whose memory is measured against it.
//
// Threads: one.
#pragma once

#include <optional>

#include "configs/layers/model_table.h"
#include "configs/run_config.h"
#include "tests/support/plain_autograd.h"
#include "worker/data/loader/synthetic.h"
#include "worker/loss/detection_loss.h"
#include "worker/step/training_state.h"

namespace headroom {

class PlainTraining {
 public:
  // REQUIRES: CountingAllocator::install() was called before.
  explicit PlainTraining(const configs::RunConfig& config);

  // Runs forward, backward and commit, and returns the loss. Throws
  // c10::OutOfMemoryError.
  double step();

 private:
  const layers::ModelTable table_;
  step::TrainingState state_;
  PlainNetwork network_;
  std::optional<loader::SyntheticInput> source_;
  loss::LossGains gains_;
  optim::ScheduleOptions schedule_;
};

}  // namespace headroom
