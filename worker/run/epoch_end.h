// EpochEnd: what a finished epoch leaves, before a run decides how it goes on:
// the validation of its averaged weights, results, weights, and pictures of the
// best validation.
//
// Errors: as validate() and RunRecorder::record_epoch().
#pragma once

#include <cstdint>

#include "configs/run_config.h"
#include "parallel/collectives/mesh.h"
#include "parallel/predict/memory_model.h"
#include "worker/loss/detection_loss.h"
#include "worker/optim/lr_schedule.h"
#include "worker/run/results.h"
#include "worker/run/run_pictures.h"
#include "worker/run/run_recorder.h"
#include "worker/run/run_reports.h"
#include "worker/step/run_inputs.h"
#include "worker/step/training_state.h"

namespace headroom::run {

class EpochEnd {
 public:
  struct Inputs {
    const configs::RunConfig& config;
    const predict::MemoryRequest& memory;  // the run's
    const step::RunInputs& inputs;
    const optim::ScheduleOptions& schedule;
    const loss::LossGains& gains;
    int64_t& validation_parts;  // AverageValidation::num_parts
    int64_t host_memory_limit = 0;  // the share of validation's loader
    step::TrainingState& state;
    collectives::Mesh& mesh;
    RunRecorder& recorder;
    RunReports& reports;
    RunPictures* pictures = nullptr;  // null: this rank draws none
  };
  explicit EpochEnd(const Inputs& inputs) : in_(inputs) {}

  // `work` is what this process did of the epoch that the newest committed step
  // ends. Collective.
  void record(const EpochWork& work);

 private:
  // Whether these weights are the best so far.
  bool validate(EpochRecord& record);
  validation::ValidationResult validate_average(EpochRecord& record);

  const Inputs in_;
};

}  // namespace headroom::run
