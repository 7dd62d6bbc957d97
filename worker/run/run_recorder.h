// RunRecorder: writes all files of a run (run directory, steps, results,
// weights, checkpoints, summary) and reports their events.
//
// Rank 0 records; other ranks only send their parts of the state, until rank 0
// is lost and another rank takes over. record_epoch() and save_checkpoint() are
// collective.
//
// A full disk does not stop training: each file that cannot be written is
// reported. At the run's end it is an error.
//
// Errors: Error if a file cannot be written: exit 2 in open(), exit 5 in
// save_checkpoint() and at the run's end.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/collectives/mesh.h"
#include "parallel/plan/batch_split.h"
#include "worker/checkpoint/checkpoint_saver.h"
#include "worker/data/sampling/sampler.h"
#include "worker/memory/memory_ladder.h"
#include "worker/run/results.h"
#include "worker/run/run_context.h"
#include "worker/run/run_directory.h"
#include "worker/step/trainer.h"
#include "worker/step/training_state.h"

namespace headroom::run {

// Runs with larger global batches write ranges instead of lists of samples.
inline constexpr int64_t kMostListedSamples = 256;
// A line of a run with more ranks has the memory of this many of them.
inline constexpr int64_t kMostListedRanks = 8;

struct StepRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  uint64_t generation = 0;
  int64_t attempt = 1;
  double seconds = 0;
  double images_per_second = 0;  // sum over all ranks
  // The global batch: `positions` in the epoch's order of its samples.
  plan::SampleRange positions;
  sampling::EpochOrder order;
  uint64_t seed = 0;
  std::string order_name;     // "": a permutation, which follows from the seed
  bool lists_samples = true;  // false: the line has only the positions
  int64_t epoch_samples = 0;  // so that the file alone can be audited
  step::StepResult result;
  bool has_anchors = true;  // of the head: it names the losses
  // Input size in pixels if it differs between steps, otherwise 0.
  int64_t image_height = 0, image_width = 0;
};

// A record as a line of steps.jsonl, without the newline. If the line does not
// list the samples, it has at most 2 KB, whatever the batch and the number of
// ranks: `samples` is then {"seed", "epoch", "begin", "end"}, which
// deploy/cli/show/ledger.h expands. In a run of more than kMostListedRanks,
// `memory` has that many ranks, others in each line, so that every rank comes
// again; `ranks` is then the number of all.
std::string to_json_line(const StepRecord& record);

// steps.jsonl: exactly one line per committed step. Rank 0 writes the line
// after the commit, while the next step computes. A resumed run first removes
// the lines of steps after its checkpoint, then appends. Errors: Error (exit 2)
// if the file cannot be opened.
class StepLog {
 public:
  // Keeps the lines of steps below `first_step` and removes the others.
  // `newest_line` is the line of step `first_step` - 1, which a lost rank 0 may
  // have committed without writing the line; "" if unknown.
  StepLog(const std::filesystem::path& file, int64_t first_step,
          const std::string& newest_line = "");

  // Makes and writes the line on another thread. What cannot be written, or not
  // be made because the host has no memory, is kept in order.
  void write(StepRecord record);
  // Waits for that thread. Returns whether all lines are written.
  bool settle();
  // Tries to write the lines that are kept; returns true if no line is left.
  bool write_waiting() {
    settle();
    return all_are_written_ = write_kept();
  }
  // Whether `file` has lines of step `first_step` or later.
  static bool has_lines_from(const std::filesystem::path& file,
                             int64_t first_step);
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  // Makes and writes what is kept. Returns false, with the reason in errno, if
  // that fails.
  bool write_kept();

  LineFile file_;                // used by the other thread until settle()
  std::deque<StepRecord> kept_;  // likewise: records that have no line yet
  std::future<bool> writing_;    // its destructor waits
  bool all_are_written_ = true;  // after the newest settle()
};

// The files without which a run cannot be resumed: their texts, by name.
std::map<std::string, std::string> run_definition(
    const RunContext& run, const std::optional<plan::NetworkRates>& network);

class RunRecorder {
 public:
  RunRecorder(const RunContext& run, step::TrainingState& state);

  // Makes or reopens the run directory, which is the last check before a run.
  // `newest_line`: the line of the newest step, restored with the state of an
  // earlier generation (state_restore.h).
  void open(const std::string& newest_line);
  void record_step(const StepRecord& record);
  // Waits until all lines of steps.jsonl are written; reports lines that cannot
  // be written. Rank 0 calls it before it votes for the next step: if it is
  // lost, its peers know the line of no step but the newest. It also calls it
  // before anything that a reader expects to find after the lines.
  void settle_lines();
  // `is_best`: the averaged weights are the best so far. `is_end`: the run
  // ends.
  void record_epoch(const EpochRecord& record, bool is_best, bool is_end);
  // Whether the newest epoch that this object recorded was left out, so that
  // last.safetensors is older.
  bool has_skipped_epoch() const { return has_skipped_epoch_; }
  // Writes last.safetensors of a run that ends in its first epoch, or after one
  // that was left out. Collective.
  void save_unfinished_epoch() const;
  // Waits, for at most 20 s, while the folder's file system does not respond,
  // for example because the server of a network file system is unreachable.
  // Call it before work that is not tried again later.
  void await_folder() const;
  // Returns the checkpoint's folder once it is on disk.
  std::filesystem::path save_checkpoint();
  // Records a checkpoint that was written while training went on.
  void record_checkpoint(const checkpoint::CheckpointOutcome& outcome);
  void record_skipped_checkpoint() { ++summary_.checkpoints.skipped; }
  // Adds new pictures to TensorBoard's file.
  void record_pictures();
  void record_memory(const memory::PhaseMemory& memory);
  // Records the memory of all devices; replaces an earlier record.
  void record_device_memory(const std::vector<DeviceMemoryLine>& ranks);
  // Ends the record of the run; returns summary.json's content.
  std::string record_end(ExitCode exit_code, const std::string& reason);

  // Makes this rank the recorder. Called when peers are lost and this rank has
  // the whole state; a lost rank 0 may not have written the newest step.
  // `place`: where the lost rank 0 wrote.
  void take_over(const StepRecord& newest, const FolderPlace& place);

 private:
  bool has_skipped_epoch_ = false;

  void open_files(const std::string& newest_line);
  // Writes the files that a run has from its first step on, and removes the
  // older run's files.
  void begin_files(int64_t first_step, const std::string& newest_line);
  // Writes the files that a resumed run reads.
  void write_definition(bool writes_model) const;
  // What is done if this machine does not share the folder in which rank 0
  // wrote before.
  void set_aside_other_run(const FolderPlace& place) const;
  // `first_line`: the step of the first line that is written here.
  void say_where_it_goes_on(const FolderPlace& place, int64_t first_line) const;
  void write_mark() const;
  // Makes the folder again if it was removed, because a checkpoint without it
  // cannot be resumed.
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
  collectives::Mesh* mesh_;  // null if this rank has the whole state
  bool records_;
  const memory::MemoryRetry retry_;         // retries the work on files
  std::optional<std::string> data_report_;  // the text, once it was made
  std::unique_ptr<StepLog> step_log_;       // null while an older run is kept
  std::unique_ptr<Results> results_;
  bool lines_wait_ = false;  // whether unwritten lines were reported
  RunSummary summary_;
  double started_;             // start, in seconds of a steady clock
  double seconds_before_ = 0;  // wall time of earlier sessions
};

}  // namespace headroom::run
