#include "worker/run/run_checkpoints.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "parallel/base/check.h"
#include "parallel/predict/phase_memory.h"
#include "worker/memory/memory_comparison.h"

namespace headroom::run {

std::filesystem::path RunCheckpoints::write() {
  recorder_.await_folder();
  finish();
  if (buddies_ != nullptr && saver_.writes_shards() &&
      state_.counters.committed_steps > 0) {
    return write_shards();
  }
  const memory::PhaseWatch watch = begin_phase();
  const std::filesystem::path folder = recorder_.save_checkpoint();
  reports_.end_phase(state_.counters.committed_steps);
  newest_steps_ = state_.counters.committed_steps;
  note_memory(watch);
  return folder;
}

// As write(), from the copies that ranks keep of their own parts.
std::filesystem::path RunCheckpoints::write_shards() {
  const int64_t committed = state_.counters.committed_steps;
  const std::filesystem::path folder = saver_.folder_of(committed);
  if (agreed_steps(state_.mesh()->world) == committed) return folder;
  recorder_.settle_lines();
  const memory::PhaseWatch watch = begin_phase();
  saver_.begin(buddies_->newest(), reports_.retry("checkpoint"));
  saver_.finish();
  reports_.end_phase(committed);
  for (const checkpoint::CheckpointOutcome& outcome : saver_.take_outcomes()) {
    if (!outcome.failure.empty()) {
      // On rank 0, after all collective work. The failure begins with a tag.
      throw Error("checkpoint",
                  outcome.failure.substr(outcome.failure.find(' ') + 1), "",
                  ExitCode::kResource);
    }
    recorder_.record_checkpoint(outcome);
  }
  newest_steps_ = committed;
  note_memory(watch);
  return folder;
}

void RunCheckpoints::begin() {
  const int64_t committed = state_.counters.committed_steps;
  // A run that resumes at this checkpoint needs the lines of all its steps.
  recorder_.settle_lines();
  const memory::PhaseWatch watch = begin_phase();
  const checkpoint::CheckpointSaver::Answer answer =
      saver_.begin(buddies_ != nullptr ? buddies_->newest()
                                       : checkpoint::HostStateSnapshot(),
                   reports_.retry("checkpoint"));
  reports_.end_phase(committed);
  note_outcomes();
  if (answer == checkpoint::CheckpointSaver::Answer::kSkipped) {
    recorder_.record_skipped_checkpoint();
    return;
  }
  if (answer == checkpoint::CheckpointSaver::Answer::kNoRoom) {
    try {
      recorder_.save_checkpoint();
      newest_steps_ = committed;
    } catch (const Error& error) {  // on rank 0, after all collective work
      if (error.exit_code() != ExitCode::kResource) throw;
      recorder_.record_checkpoint({committed, {}, 0, error.what()});
    }
  }
  note_memory(watch);
}

int64_t RunCheckpoints::agreed_steps(collectives::Communicator& world) const {
  int64_t steps = std::max(newest_steps_, saver_.writing_steps());
  world.broadcast(at::from_blob(&steps, {1}, at::kLong), /*root=*/0);
  return steps;
}

void RunCheckpoints::settle() {
  saver_.settle();
  note_outcomes();
}

void RunCheckpoints::finish() {
  saver_.finish();
  note_outcomes();
}

memory::PhaseWatch RunCheckpoints::begin_phase() {
  begun_ = std::chrono::steady_clock::now();
  reports_.show_phase(wire::WorkerPhase::kCheckpoint);
  reports_.begin_phase(configs::Fault::Phase::kCheckpoint,
                       state_.counters.committed_steps);
  return {"checkpoint", run_.device.memory()};
}

void RunCheckpoints::note_memory(const memory::PhaseWatch& watch) {
  reports_.note_memory(watch.compare(
      predict::estimate_checkpoint(run_.memory, state_.mesh()->here)));
}

void RunCheckpoints::note_outcomes() {
  for (const checkpoint::CheckpointOutcome& outcome : saver_.take_outcomes()) {
    recorder_.record_checkpoint(outcome);
    if (outcome.failure.empty()) newest_steps_ = outcome.step;
  }
}

}  // namespace headroom::run
