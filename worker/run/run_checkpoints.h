// RunCheckpoints: when a run's checkpoints are written, and what is noted of
// them: one that is waited for, or one beside training (checkpoint_saver.h).
//
// Ownership: borrows all it is given. Threads: the one that trains.
// Errors: as RunRecorder::save_checkpoint() and CheckpointSaver.
#pragma once

#include <filesystem>

#include "worker/run/run_context.h"
#include "worker/run/run_reports.h"

namespace headroom::run {

class RunCheckpoints {
 public:
  RunCheckpoints(RunContext& run, RunReports& reports)
      : run_(run), reports_(reports) {}

  // Written before the run goes on, or ends. Collective.
  std::filesystem::path write();
  // One that is due, beside training. Collective.
  void begin();
  // Around a step: what is on its way to other ranks, or to disk, has come.
  void settle();
  // Returns when nothing is being written any more.
  void finish();

 private:
  void note_outcomes();

  RunContext& run_;
  RunReports& reports_;
};

}  // namespace headroom::run
