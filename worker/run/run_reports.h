// RunReports: what a run says while it trains: its phase and progress to the
// coordinator, events for people, and what each phase needed in memory over
// what was predicted.
//
// Threads: the one that trains; begin_phase(), end_phase() and report() also
// from a loader's.
// Errors: CommunicationError of note_memory() and note_device().
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "configs/fault.h"
#include "configs/run_config.h"
#include "parallel/collectives/communicator.h"
#include "worker/control/coordinator_client.h"
#include "worker/memory/memory_comparison.h"
#include "worker/memory/memory_ladder.h"
#include "worker/run/run_device.h"
#include "worker/run/run_recorder.h"
#include "worker/step/fault_injection.h"
#include "worker/step/training_state.h"

namespace headroom::run {

class RunReports {
 public:
  struct Inputs {
    const configs::RunConfig& config;
    int rank = 0;
    const step::TrainingCounters& counters;
    int64_t steps_in_epoch = 0, num_steps = 0;  // numbers of the run
    int64_t image_height = 0, image_width = 0;  // the network's input
    collectives::Communicator& world;
    control::CoordinatorClient& client;
    RunRecorder& recorder;
    DeviceBudget& device;
    step::FaultInjection& faults;
  };
  explicit RunReports(const Inputs& inputs);

  void show_phase(wire::WorkerPhase phase);
  // So many images of a validation's are through, of all ranks together.
  void show_validation(int64_t images, int64_t all);
  // The newest committed step, also to the coordinator's ledger.
  void commit(const StepRecord& newest);
  // Images that could not be read, each the first time it is met.
  void say_once(const std::vector<std::string>& faults);
  void report(int64_t step, const memory::StepEvent& event);
  memory::MemoryRetry retry(const std::string& phase);

  // Around something that --inject may let run out of memory.
  void begin_phase(configs::Fault::Phase phase, int64_t step);
  void end_phase(int64_t step);
  // Gathers what all ranks needed, unless a peer is lost; names each phase that
  // needed more than predicted once. Collective.
  memory::PhaseMemory note_memory(const memory::MemoryComparison& comparison);
  // What the processes have on their devices: at the start, and again once a
  // first step has run. Collective; nothing on the CPU.
  void note_device();
  void note_first_step();
  // A peer is lost: nothing is collective any more.
  void leave_peers() { has_peers_ = false; }

 private:
  int64_t committed() const { return in_.counters.committed_steps; }

  const Inputs in_;
  wire::RunProgress progress_;
  std::vector<double> durations_;      // seconds of the newest steps
  std::set<std::string> faults_said_;  // each is named once
  std::set<std::string> exceeded_;     // phases that needed more than predicted
  bool has_peers_ = true;
};

}  // namespace headroom::run
