// EpochEnd: the work after the last step of an epoch or of the run. It
// validates the averaged weights, writes results and weights, and keeps the
// data for pictures of the best validation.
//
// Errors: as validate() and RunRecorder::record_epoch().
#pragma once

#include <cstdint>

#include "worker/loss/detection_loss.h"
#include "worker/run/results.h"
#include "worker/run/run_context.h"
#include "worker/run/run_pictures.h"
#include "worker/run/run_recorder.h"
#include "worker/run/run_reports.h"
#include "worker/step/training_state.h"

namespace headroom::run {

class EpochEnd {
 public:
  // `host_memory_limit`: bytes of validation's loader; 0 means its default.
  // `validation_parts`: AverageValidation::num_parts, which the caller keeps
  // for the next generation. `pictures`: null if this rank draws no pictures.
  EpochEnd(const RunContext& run, step::TrainingState& state,
           const loss::LossGains& gains, int64_t host_memory_limit,
           int64_t& validation_parts, RunRecorder& recorder,
           RunReports& reports, RunPictures* pictures)
      : run_(run),
        state_(state),
        gains_(gains),
        host_memory_limit_(host_memory_limit),
        validation_parts_(validation_parts),
        recorder_(recorder),
        reports_(reports),
        pictures_(pictures) {}

  // `work`: this process's share of the epoch that has just ended, or that
  // --time ends. `is_last`: the run ends now. Collective.
  void record(const EpochWork& work, bool is_last);

 private:
  // Returns whether these weights are the best so far.
  bool validate(EpochRecord& record);
  validation::ValidationResult validate_average(EpochRecord& record);

  const RunContext& run_;
  step::TrainingState& state_;
  const loss::LossGains gains_;
  const int64_t host_memory_limit_;
  int64_t& validation_parts_;
  RunRecorder& recorder_;
  RunReports& reports_;
  RunPictures* const pictures_;
};

}  // namespace headroom::run
