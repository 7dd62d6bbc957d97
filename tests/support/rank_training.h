// RankTraining: one rank that trains on synthetic input, put together as a run
// of `headroom train --synthetic-input` is, without files and coordinator.
//
// Ownership: borrows the communicator.
// Threads: the rank's.
#pragma once

#include <memory>

#include "configs/run_config.h"
#include "parallel/collectives/communicator.h"
#include "parallel/plan/plan.h"
#include "worker/data/synthetic.h"
#include "worker/trainer.h"

namespace headroom {

// The plan that train would use. Throws Error if it would refuse.
Plan plan_of_synthetic_run(const RunConfig& config);

class RankTraining {
 public:
  // Before the first: CountingAllocator::install() and
  // install_saved_tensor_policies(). Collective.
  RankTraining(const RunConfig& config, const Plan& plan, Communicator& world);

  // Throws Error if the step does not commit.
  StepResult step();

  TrainingState& state() { return *state_; }

 private:
  Mesh mesh_;
  std::unique_ptr<TrainingState> state_;
  std::unique_ptr<SyntheticInput> source_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace headroom
