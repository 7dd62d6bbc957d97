// RunRecorder: writes all files of a run: the run directory, steps, results,
// weights, checkpoints, summary; and reports their events.
//
// Rank 0 records; other ranks only send their parts of the state, until one
// takes over because rank 0 was lost. record_epoch() and save_checkpoint() are
// collective.
//
// A full disk does not stop training: each file that cannot be written is
// reported. Only at the run's end is it an error.
//
// Errors: Error when a file cannot be written: exit 2 in open(), exit 5 in
// save_checkpoint(), and where the run ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/collectives/mesh.h"
#include "worker/checkpoint/checkpoint_saver.h"
#include "worker/memory/memory_ladder.h"
#include "worker/run/results.h"
#include "worker/run/run_context.h"
#include "worker/run/run_directory.h"
#include "worker/step/trainer.h"
#include "worker/step/training_state.h"

namespace headroom::run {

struct StepRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  uint64_t generation = 0;
  int64_t attempt = 1;
  double seconds = 0;
  double images_per_second = 0;  // sum over all ranks
  std::vector<int64_t> samples;  // the global batch, in its order
  step::StepResult result;
  // Pixels of the network's input where steps differ in it; else 0.
  int64_t image_height = 0, image_width = 0;
};

// A record as a line of steps.jsonl, without the line's end. Every line says
// how many samples an epoch has, so that the file alone can be audited
// (deploy/cli/show/ledger.h).
std::string to_json_line(const StepRecord& record, int64_t epoch_samples);

// steps.jsonl: one line per committed step, each step exactly once. Rank 0
// writes it right after the commit. A resume first cuts what lies beyond the
// checkpoint it uses, then appends. Errors: Error (exit 2) when the file cannot
// be opened.
class StepLog {
 public:
  // Keeps the lines of steps below `first_step`, cuts the rest. `newest_line`
  // is that of the step before: a lost rank 0 may have committed it without
  // writing it.
  StepLog(const std::filesystem::path& file, int64_t first_step,
          const std::string& newest_line = "");

  // Returns whether this line and all before it are written; otherwise they
  // wait in memory.
  bool write(const std::string& line);
  // Writes the lines that wait; true if none is left.
  bool write_waiting() { return file_.write(); }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  LineFile file_;
};

class RunRecorder {
 public:
  RunRecorder(const RunContext& run, step::TrainingState& state);

  // Makes or reopens the run directory: the last check before a run.
  // `newest_line`: of the state of an earlier generation (state_restore.h).
  void open(const std::string& newest_line);
  void record_step(const StepRecord& record);
  // `is_best`: the averaged weights are the best so far. `is_end`: of the run.
  void record_epoch(const EpochRecord& record, bool is_best, bool is_end);
  // last.safetensors of a run that ends inside its first epoch. Collective.
  void save_unfinished_epoch() const;
  // Returns its folder once it is on disk.
  std::filesystem::path save_checkpoint();
  // The outcome of a checkpoint that was written while training went on.
  void record_checkpoint(const checkpoint::CheckpointOutcome& outcome);
  void record_skipped_checkpoint() { ++summary_.checkpoints.skipped; }
  // Adds new pictures to TensorBoard's file.
  void record_pictures();
  // Memory of a phase between the steps.
  void record_memory(const memory::PhaseMemory& memory);
  // Replaces what was recorded before.
  void record_device_memory(const std::vector<DeviceMemoryLine>& ranks);
  // Ends the record of the run; returns summary.json's content.
  std::string record_end(ExitCode exit_code, const std::string& reason);

  // From here on this rank records. Called when peers are lost and this rank
  // has the whole state; a lost rank 0 may not have written the newest step.
  void take_over(const StepRecord& newest);

 private:
  void open_files(const std::string& newest_line);
  // Writes the files that a run has from its first step on, and removes an
  // older run's.
  void begin_files(int64_t first_step, const std::string& newest_line);
  // Writes the files that a resumed run reads.
  void write_definition(bool writes_model) const;
  // Makes the folder again if it was removed: a checkpoint alone cannot be
  // resumed.
  void make_folder_again() const;
  void report_data();
  void save_average(const std::string& name, int64_t epoch) const;
  void write_or_say(const std::string& name, bool is_end,
                    const std::function<void()>& work) const;
  void report_checkpoints() const;
  void write_summary(const std::string& ended);

  const RunContext& run_;
  step::TrainingState& state_;
  RunDirectory directory_;
  collectives::Mesh* mesh_;  // null: this rank has the whole state
  bool records_;
  const memory::MemoryRetry retry_;         // retries for files
  std::optional<std::string> data_report_;  // once it is known
  std::unique_ptr<StepLog> step_log_;       // null while an older run is kept
  std::unique_ptr<Results> results_;
  bool lines_wait_ = false;  // lines of step_log_ wait, and it was reported
  RunSummary summary_;
  double started_;             // seconds of a steady clock
  double seconds_before_ = 0;  // earlier sessions of this run
};

}  // namespace headroom::run
