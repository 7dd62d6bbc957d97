// RunReports: reports of a run while it trains: phase and progress for the
// coordinator, events for users, and phases that needed more memory than
// predicted.
//
// Threads: the training thread; begin_phase(), end_phase() and report() may
// also be called from a loader's thread.
// Errors: CommunicationError in note_memory() and note_device().
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "configs/fault.h"
#include "worker/control/coordinator_client.h"
#include "worker/memory/memory_comparison.h"
#include "worker/memory/memory_ladder.h"
#include "worker/run/run_context.h"
#include "worker/run/run_device.h"
#include "worker/run/run_recorder.h"
#include "worker/step/training_state.h"

namespace headroom::run {

class RunReports {
 public:
  RunReports(const RunContext& run, step::TrainingState& state,
             RunRecorder& recorder, DeviceBudget& budget);

  void show_phase(wire::WorkerPhase phase);
  // Shows that `images` of `all` images are validated, on all ranks together.
  void show_validation(int64_t images, int64_t all);
  // Reports a committed step; rank 0 also sends it for the coordinator's
  // ledger.
  void commit(const StepRecord& newest);
  // Reports images that could not be read, each once.
  void say_once(const std::vector<std::string>& faults);
  void report(int64_t step, const memory::StepEvent& event);
  memory::MemoryRetry retry(const std::string& phase);

  // Enclose work in which --inject may make allocations fail.
  void begin_phase(configs::Fault::Phase phase, int64_t step);
  void end_phase(int64_t step);
  // Gathers the memory that each rank needed in a phase, unless a peer is lost.
  // Reports a phase that needed more than predicted, once. Collective.
  memory::PhaseMemory note_memory(const memory::MemoryComparison& comparison);
  // Both functions report the memory of all processes on their devices:
  // note_device() at the start, note_first_step() after the first step.
  // Collective; no effect on the CPU.
  void note_device();
  void note_first_step();
  // Called when a peer is lost: further calls do not communicate with peers.
  void leave_peers() { has_peers_ = false; }

 private:
  int64_t committed() const { return state_.counters.committed_steps; }

  const RunContext& run_;
  const step::TrainingState& state_;
  RunRecorder& recorder_;
  DeviceBudget& budget_;
  wire::RunProgress progress_;
  // Of the newest steps. Their median is shown, because a step that waits for a
  // checkpoint or an image is slow.
  std::vector<double> durations_, speeds_;
  std::set<std::string> faults_said_;
  std::set<std::string> exceeded_;  // phases that were already reported
  bool has_peers_ = true;
};

}  // namespace headroom::run
