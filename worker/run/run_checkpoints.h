// RunCheckpoints: when a run's checkpoints are written, and what is noted of
// them: one that is waited for, or one beside training (checkpoint_saver.h).
//
// Errors: as RunRecorder::save_checkpoint() and CheckpointSaver.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "parallel/activations/memory_meter.h"
#include "parallel/plan/layout.h"
#include "parallel/predict/memory_model.h"
#include "worker/checkpoint/checkpoint_saver.h"
#include "worker/checkpoint/peer_replicas.h"
#include "worker/run/run_recorder.h"
#include "worker/run/run_reports.h"

namespace headroom::run {

class RunCheckpoints {
 public:
  struct Inputs {
    const step::TrainingCounters& counters;
    const predict::MemoryRequest& memory;  // the run's
    const plan::MeshCoordinates& rank;
    activations::MemoryMeter& meter;  // this rank's device
    checkpoint::CheckpointSaver& saver;
    checkpoint::PeerReplicas* buddies = nullptr;  // null: the state is whole
    RunRecorder& recorder;
    RunReports& reports;
  };
  // `newest_steps`: of the newest checkpoint; 0: there is none.
  RunCheckpoints(const Inputs& inputs, int64_t newest_steps)
      : in_(inputs), newest_steps_(newest_steps) {}

  // Written before the run goes on, or ends. Collective.
  std::filesystem::path write();
  // One that is due, beside training. Collective.
  void begin();
  // Around a step: what is on its way to other ranks, or to disk, has come.
  void settle();
  // Returns when nothing is being written any more.
  void finish();

  int64_t newest_steps() const { return newest_steps_; }
  // Rank 0's newest, one that it is still writing included: the others learn of
  // each later than it does. Collective.
  int64_t agreed_steps(collectives::Communicator& world) const;
  // The time since one was last begun, or training was.
  std::chrono::steady_clock::duration age() const {
    return std::chrono::steady_clock::now() - begun_;
  }

 private:
  memory::PhaseWatch begin_phase();
  void note_memory(const memory::PhaseWatch& watch);
  void note_outcomes();

  const Inputs in_;
  int64_t newest_steps_;
  std::chrono::steady_clock::time_point begun_ =
      std::chrono::steady_clock::now();
};

}  // namespace headroom::run
