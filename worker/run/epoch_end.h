// EpochEnd: the work after the last step of an epoch or of the run. It
// validates the averaged weights, writes results and weights, and keeps the
// data for pictures of the best validation. With --val-share it only writes the
// results of epochs that are too short.
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
#include "worker/run/validation_pace.h"
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
        pictures_(pictures),
        pace_(configs::validation_share(run.config,
                                        state.mesh()->world.size())) {}

  // Whether the epoch that has just ended is validated and saved. `is_last`:
  // the run ends now. Rank 0 decides. Collective.
  bool is_due(bool is_last);
  // `work`: this process's share of the epoch that has just ended, or that
  // --time ends. Collective.
  void record(const EpochWork& work, bool is_due, bool is_last);
  // The epoch, which was due, is saved.
  void finish();

 private:
  int64_t epoch() const {
    return (state_.counters.committed_steps - 1) / run_.steps_in_epoch;
  }
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
  ValidationPace pace_;
  ValidationPace::Time began_;
  bool has_skipped_ = false;
};

}  // namespace headroom::run
