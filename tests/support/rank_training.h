// RankTraining: one rank that trains on synthetic input, put together as a run
// of `headroom train --synthetic-input` is, without files and coordinator.
//
// Ownership: borrows the communicator.
// Threads: the rank's.
#pragma once

#include <filesystem>
#include <memory>

#include "configs/run_config.h"
#include "parallel/collectives/communicator.h"
#include "parallel/plan/plan.h"
#include "worker/average_validation.h"
#include "worker/data/synthetic.h"
#include "worker/step_shape.h"
#include "worker/trainer.h"

namespace headroom {

// The plan that train would use. Throws Error if it would refuse.
Plan plan_of_synthetic_run(const RunConfig& config);

class RankTraining {
 public:
  // Before the first: CountingAllocator::install() and
  // install_saved_tensor_policies(). Collective. Each image has so many small
  // boxes beside the synthetic input's.
  RankTraining(const RunConfig& config, const Plan& plan, Communicator& world,
               int64_t more_boxes_per_image = 0,
               const ComputeDevice& device = {});

  // From the next step on, the batch lies on the device: none is sent there.
  void keep_batch_on_device() { keeps_batch_on_device_ = true; }
  // Throws Error if the step does not commit.
  StepResult step();

  // The averaged weights on a data set of synthetic input's classes.
  ValidatedAverage validate(const MemoryRequest& memory,
                            const Dataset& dataset);
  // The bytes that a checkpoint takes.
  MemoryComparison save(const MemoryRequest& memory,
                        const std::filesystem::path& checkpoints);

  TrainingState& state() { return *state_; }
  // Of the newest step.
  const StepShape& shape() const { return shape_; }

 private:
  void add_boxes(Batch& batch) const;

  const RunConfig config_;
  const int64_t more_boxes_per_image_;
  Mesh mesh_;
  LossGains gains_;
  PassLists pass_lists_;
  AssignTargets assign_;
  StepShape shape_;
  bool keeps_batch_on_device_ = false;
  at::Tensor images_on_device_;  // synthetic input's batches are all the same
  std::unique_ptr<Teacher> teacher_;  // of fresh weights
  std::unique_ptr<TrainingState> state_;
  std::unique_ptr<SyntheticInput> source_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace headroom
