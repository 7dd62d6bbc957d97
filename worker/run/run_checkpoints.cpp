#include "worker/run/run_checkpoints.h"

#include "parallel/base/check.h"
#include "parallel/predict/memory_request.h"
#include "worker/memory/memory_comparison.h"

namespace headroom::run {

std::filesystem::path RunCheckpoints::write() {
  finish();
  reports_.show_phase("checkpoint");
  reports_.begin_phase(configs::Fault::Phase::kCheckpoint, run_.committed());
  const memory::PhaseWatch watch("checkpoint", run_.device.memory());
  const std::filesystem::path folder = run_.recorder->save_checkpoint();
  reports_.end_phase(run_.committed());
  run_.checkpoint_steps = run_.committed();
  reports_.note_memory(watch.compare(
      predict::estimate_checkpoint(run_.memory, run_.mesh->here)));
  return folder;
}

void RunCheckpoints::begin() {
  reports_.show_phase("checkpoint");
  reports_.begin_phase(configs::Fault::Phase::kCheckpoint, run_.committed());
  const memory::PhaseWatch watch("checkpoint", run_.device.memory());
  const checkpoint::CheckpointSaver::Answer answer =
      run_.saver->begin(run_.buddies ? run_.buddies->newest() : at::Tensor(),
                        reports_.retry("checkpoint"));
  reports_.end_phase(run_.committed());
  note_outcomes();
  if (answer == checkpoint::CheckpointSaver::Answer::kSkipped) {
    run_.recorder->record_skipped_checkpoint();
    return;
  }
  if (answer == checkpoint::CheckpointSaver::Answer::kNoRoom) {
    try {
      run_.recorder->save_checkpoint();
      run_.checkpoint_steps = run_.committed();
    } catch (const Error& error) {  // of rank 0; all have done their part
      if (error.exit_code() != ExitCode::kResource) throw;
      run_.recorder->record_checkpoint({run_.committed(), {}, 0, error.what()});
    }
  }
  reports_.note_memory(watch.compare(
      predict::estimate_checkpoint(run_.memory, run_.mesh->here)));
}

void RunCheckpoints::settle() {
  if (run_.buddies) run_.buddies->settle();
  run_.saver->settle();
  note_outcomes();
}

void RunCheckpoints::finish() {
  if (!run_.saver) return;  // a peer was lost before there was any
  run_.saver->finish();
  note_outcomes();
}

void RunCheckpoints::note_outcomes() {
  for (const checkpoint::CheckpointOutcome& outcome :
       run_.saver->take_outcomes()) {
    run_.recorder->record_checkpoint(outcome);
    if (outcome.failure.empty()) run_.checkpoint_steps = outcome.step;
  }
}

}  // namespace headroom::run
