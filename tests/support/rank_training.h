// RankTraining: one rank that trains on synthetic input, set up like a run of
// `headroom train --synthetic-input`, without files and coordinator.
//
// Ownership: borrows the communicator. Threads: the rank's.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "configs/run_config.h"
#include "parallel/collectives/communicator.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/label_bound.h"
#include "worker/data/loader/batch.h"
#include "worker/data/loader/synthetic.h"
#include "worker/step/step_prediction.h"
#include "worker/step/trainer.h"
#include "worker/validation/average_validation.h"

namespace headroom {

// A run of yolov5n in float64 with all activations kept, on batches of four
// synthetic images of 64 x 64 pixels. `layout` is written as on the command
// line.
configs::RunConfig small_synthetic_run(const std::string& layout = "data=1");

// The plan that `headroom train` would use. Throws Error if `train` would
// refuse the run.
plan::Plan plan_of_synthetic_run(const configs::RunConfig& config);

class RankTraining {
 public:
  // REQUIRES: CountingAllocator::install() and install_saved_tensor_policies()
  // were called before. Collective. Each image gets `more_boxes_per_image`
  // small boxes in addition to those of the synthetic input.
  RankTraining(const configs::RunConfig& config, const plan::Plan& plan,
               collectives::Communicator& world,
               int64_t more_boxes_per_image = 0,
               const devices::ComputeDevice& device = {});

  // All later steps reuse the next step's batch, so its labels and matches,
  // which loader threads make in a real run, are made only once.
  void keep_batch() { keeps_batch_ = true; }
  // As keep_batch(), but the images stay on the device and are never copied
  // there.
  void keep_batch_on_device() { keeps_batch_ = keeps_batch_on_device_ = true; }
  // Called in each step before its vote.
  void before_vote(std::function<void()> callback) {
    before_vote_ = std::move(callback);
  }
  // Adds `boxes` boxes per image to the given step. REQUIRES: this is a later
  // step than the next one, and has a batch of its own.
  void add_boxes_at(int64_t step, int64_t boxes) { crowded_ = {step, boxes}; }
  step::StepResult attempt();
  // Trains a step; throws Error if it does not commit.
  step::StepResult step();

  // Validates the averaged weights on a data set with the classes of the
  // synthetic input.
  validation::ValidatedAverage validate(const predict::MemoryRequest& memory,
                                        const labels::Dataset& dataset);
  // Saves a checkpoint, and returns its measured and predicted memory.
  memory::MemoryComparison save(const predict::MemoryRequest& memory,
                                const std::filesystem::path& checkpoints);

  step::TrainingState& state() { return *state_; }
  // The shape for which the newest step's memory was predicted, and the label
  // bound that holds for all steps.
  const predict::StepShape& shape() const { return shape_; }
  const predict::LabelBound& labels() const { return labels_; }

 private:
  // Adds `more` boxes to each image.
  void add_boxes(loader::Batch& batch, int64_t more) const;
  int64_t more_boxes_at(int64_t step) const {
    return more_boxes_per_image_ +
           (step == crowded_.first ? crowded_.second : 0);
  }
  const loader::Batch& next_batch();
  // Copies the images into page-locked memory, as a loader would have made
  // them.
  at::Tensor in_other_memory(const at::Tensor& images) const;

  const configs::RunConfig config_;
  const int64_t more_boxes_per_image_;
  // A step and its additional boxes.
  std::pair<int64_t, int64_t> crowded_ = {-1, 0};
  loader::Batch ahead_;  // the next step's batch, with additional boxes
  collectives::Mesh mesh_;
  loss::LossGains gains_;
  int64_t validation_parts_ = 0;
  loader::AssignTargets assign_;
  loader::PackTargets pack_;  // null: the loss is computed on the host
  predict::LabelBound labels_;
  predict::StepShape shape_;
  std::function<void()> before_vote_;
  bool keeps_batch_ = false;
  bool keeps_batch_on_device_ = false;
  std::optional<loader::Batch> batch_;
  // The next step's batch if the batch is kept: the same images in other
  // memory.
  std::optional<loader::Batch> following_;
  std::unique_ptr<step::Teacher> teacher_;  // has fresh weights
  std::unique_ptr<step::TrainingState> state_;
  std::unique_ptr<loader::SyntheticInput> source_;
  std::unique_ptr<step::Trainer> trainer_;
};

}  // namespace headroom
