// RunReports: what a run says while it trains: its phase and progress to the
// coordinator, events for people, and what each phase needed in memory over
// what was predicted.
//
// Ownership: borrows all it is given. Threads: the one that trains.
// Errors: CommunicationError of note_memory().
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "configs/fault.h"
#include "parallel/predict/phase_memory.h"
#include "worker/memory/memory_comparison.h"
#include "worker/memory/memory_ladder.h"
#include "worker/run/run_context.h"
#include "worker/run/step_log.h"
#include "worker/step/fault_injection.h"

namespace headroom::run {

class RunReports {
 public:
  RunReports(RunContext& run, step::FaultInjection& faults);

  // Once the parts are prepared.
  void begin();
  void show_phase(const std::string& phase);
  // The newest committed step, also to the coordinator's ledger.
  void commit(const StepRecord& newest);
  // Images that could not be read, each the first time it is met.
  void say_once(const std::vector<std::string>& faults);
  void report(int64_t step, const memory::StepEvent& event);
  memory::MemoryRetry retry(const std::string& phase);

  // Around something that --inject may let run out of memory.
  void begin_phase(configs::Fault::Phase phase, int64_t step);
  void end_phase(int64_t step);
  // Of all ranks, where there are any; each phase that needed too much is named
  // once. Collective.
  memory::PhaseMemory note_memory(const memory::MemoryComparison& comparison);
  // What the process has on its device: at the start, and again once a first
  // step has run. Collective; nothing on the CPU.
  void note_device();
  void note_first_step();
  // One is lost: nothing is collective any more.
  void leave_peers() { has_peers_ = false; }

 private:
  RunContext& run_;
  step::FaultInjection& faults_;
  wire::RunProgress progress_;
  std::vector<double> durations_;      // of the newest steps, in seconds
  std::set<std::string> faults_said_;  // each is named once
  std::set<std::string> exceeded_;     // phases that needed more than predicted
  bool has_peers_ = true;
};

}  // namespace headroom::run
