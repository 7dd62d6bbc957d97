#include "worker/run/run_checkpoints.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "parallel/base/check.h"
#include "parallel/predict/phase_memory.h"
#include "worker/memory/memory_comparison.h"

namespace headroom::run {

std::filesystem::path RunCheckpoints::write() {
  finish();
  const memory::PhaseWatch watch = begin_phase();
  const std::filesystem::path folder = in_.recorder.save_checkpoint();
  in_.reports.end_phase(in_.counters.committed_steps);
  newest_steps_ = in_.counters.committed_steps;
  note_memory(watch);
  return folder;
}

void RunCheckpoints::begin() {
  const int64_t committed = in_.counters.committed_steps;
  const memory::PhaseWatch watch = begin_phase();
  const checkpoint::CheckpointSaver::Answer answer = in_.saver.begin(
      in_.buddies != nullptr ? in_.buddies->newest() : at::Tensor(),
      in_.reports.retry("checkpoint"));
  in_.reports.end_phase(committed);
  note_outcomes();
  if (answer == checkpoint::CheckpointSaver::Answer::kSkipped) {
    in_.recorder.record_skipped_checkpoint();
    return;
  }
  if (answer == checkpoint::CheckpointSaver::Answer::kNoRoom) {
    try {
      in_.recorder.save_checkpoint();
      newest_steps_ = committed;
    } catch (const Error& error) {  // rank 0 failed; all have done their part
      if (error.exit_code() != ExitCode::kResource) throw;
      in_.recorder.record_checkpoint({committed, {}, 0, error.what()});
    }
  }
  note_memory(watch);
}

int64_t RunCheckpoints::agreed_steps(collectives::Communicator& world) const {
  int64_t steps = std::max(newest_steps_, in_.saver.writing_steps());
  world.broadcast(at::from_blob(&steps, {1}, at::kLong), /*root=*/0);
  return steps;
}

void RunCheckpoints::settle() {
  if (in_.buddies != nullptr) in_.buddies->settle();
  in_.saver.settle();
  note_outcomes();
}

void RunCheckpoints::finish() {
  in_.saver.finish();
  note_outcomes();
}

memory::PhaseWatch RunCheckpoints::begin_phase() {
  begun_ = std::chrono::steady_clock::now();
  in_.reports.show_phase(wire::WorkerPhase::kCheckpoint);
  in_.reports.begin_phase(configs::Fault::Phase::kCheckpoint,
                          in_.counters.committed_steps);
  return {"checkpoint", in_.meter};
}

void RunCheckpoints::note_memory(const memory::PhaseWatch& watch) {
  in_.reports.note_memory(
      watch.compare(predict::estimate_checkpoint(in_.memory, in_.rank)));
}

void RunCheckpoints::note_outcomes() {
  for (const checkpoint::CheckpointOutcome& outcome :
       in_.saver.take_outcomes()) {
    in_.recorder.record_checkpoint(outcome);
    if (outcome.failure.empty()) newest_steps_ = outcome.step;
  }
}

}  // namespace headroom::run
