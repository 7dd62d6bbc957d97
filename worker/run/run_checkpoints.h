// RunCheckpoints: writes a run's checkpoints and records their outcome. The run
// waits for a checkpoint, or trains while it is written (checkpoint_saver.h).
//
// Errors: as RunRecorder::save_checkpoint() and CheckpointSaver.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "worker/checkpoint/checkpoint_saver.h"
#include "worker/checkpoint/peer_replicas.h"
#include "worker/run/run_context.h"
#include "worker/run/run_recorder.h"
#include "worker/run/run_reports.h"

namespace headroom::run {

class RunCheckpoints {
 public:
  // `buddies`: null if every rank has the whole state. `newest_steps`: steps of
  // the newest checkpoint; 0 if there is none.
  RunCheckpoints(const RunContext& run, const step::TrainingState& state,
                 checkpoint::CheckpointSaver& saver,
                 checkpoint::PeerReplicas* buddies, RunRecorder& recorder,
                 RunReports& reports, int64_t newest_steps)
      : run_(run),
        state_(state),
        saver_(saver),
        buddies_(buddies),
        recorder_(recorder),
        reports_(reports),
        newest_steps_(newest_steps) {}

  // Writes a checkpoint and returns when it is on disk. Collective.
  std::filesystem::path write();
  // Begins a checkpoint that is written while training goes on. Collective.
  void begin();
  // Called before each step: records copies and checkpoints that have finished.
  void settle();
  // Waits until no checkpoint is being written.
  void finish();

  int64_t newest_steps() const { return newest_steps_; }
  // Steps of rank 0's newest checkpoint, which is written or being written.
  // Other ranks may not have received this number yet. Collective.
  int64_t agreed_steps(collectives::Communicator& world) const;
  // Time since the newest checkpoint was begun, or since training was begun if
  // there is no checkpoint.
  std::chrono::steady_clock::duration age() const {
    return std::chrono::steady_clock::now() - begun_;
  }

 private:
  std::filesystem::path write_shards();
  memory::PhaseWatch begin_phase();
  void note_memory(const memory::PhaseWatch& watch);
  void note_outcomes();

  const RunContext& run_;
  const step::TrainingState& state_;
  checkpoint::CheckpointSaver& saver_;
  checkpoint::PeerReplicas* const buddies_;
  RunRecorder& recorder_;
  RunReports& reports_;
  int64_t newest_steps_;
  std::chrono::steady_clock::time_point begun_ =
      std::chrono::steady_clock::now();
};

}  // namespace headroom::run
