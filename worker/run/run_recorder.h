// RunRecorder: everything a run writes, in one place: the run directory, steps,
// results, weights, checkpoints, summary, and the events that people see.
//
// Rank 0 records; other ranks only send their parts of the state, until one
// takes over because rank 0 was lost. record_epoch() and save_checkpoint() are
// collective.
//
// A full disk does not end a run before its end: what cannot be written is
// named, each time, and training goes on.
//
// Ownership: borrows all it is given. Threads: one.
// Errors: Error when a file cannot be written: exit 2 in open(), exit 5 in
// save_checkpoint(), and where the run ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "worker/checkpoint/checkpoint_saver.h"
#include "worker/control/coordinator_client.h"
#include "worker/memory/memory_ladder.h"
#include "worker/run/results.h"
#include "worker/run/run_directory.h"
#include "worker/run/step_log.h"
#include "worker/step/run_inputs.h"
#include "worker/step/training_state.h"

namespace headroom::run {

// Whether the run goes on: from a checkpoint of an earlier start, or from what
// an earlier generation of this one left.
bool continues_run(const configs::RunConfig& config,
                   const control::Assignment& assignment);

class RunRecorder {
 public:
  struct Subject {
    const configs::RunConfig& config;
    const control::Assignment& assignment;
    const step::RunInputs& inputs;
    step::TrainingState& state;
    int64_t steps_in_epoch = 0;
    int64_t images_in_epoch = 0;
    // Of the state that an earlier generation left (state_restore.h).
    const std::string& newest_line;
  };
  RunRecorder(const Subject& subject, control::CoordinatorClient& client);

  // Whose ranks hold the state; null: this rank has it all. The mesh must
  // outlive its use here.
  void set_mesh(collectives::Mesh* mesh) { mesh_ = mesh; }

  // Makes or reopens the run directory: the last of the checks before a run.
  void open();
  void record_step(const StepRecord& record);
  // `is_best`: the averaged weights are the best so far. `is_end`: of the run.
  void record_epoch(const EpochRecord& record, bool is_best, bool is_end);
  // Returns its folder once it is on disk.
  std::filesystem::path save_checkpoint();
  // What became of one that was written beside training.
  void record_checkpoint(const checkpoint::CheckpointOutcome& outcome);
  void record_skipped_checkpoint() { ++summary_.checkpoints.skipped; }
  // Of a phase beside the steps.
  void record_memory(const memory::PhaseMemory& memory);
  // The newest counts.
  void record_device_memory(const std::vector<DeviceMemoryLine>& ranks);
  // The last word on the run; returns summary.json's content.
  std::string record_end(const std::string& reason);

  // Rank 0 is lost and may not have written the newest committed step.
  void take_over(const StepRecord& newest);

 private:
  void open_files();
  void report_data() const;
  void save_average(const std::string& name, int64_t epoch) const;
  void write_or_say(const std::string& name, bool is_end,
                    const std::function<void()>& work) const;
  void report_checkpoints() const;
  void write_summary(const std::string& ended);

  Subject subject_;
  control::CoordinatorClient& client_;
  RunDirectory directory_;
  collectives::Mesh* mesh_ = nullptr;
  bool records_;
  const memory::MemoryRetry retry_;  // of files
  std::unique_ptr<StepLog> step_log_;
  std::unique_ptr<Results> results_;
  bool lines_wait_ = false;  // of step_log_, and it was said
  RunSummary summary_;
  double started_;             // seconds of a steady clock
  double seconds_before_ = 0;  // of earlier sessions of this run
};

}  // namespace headroom::run
