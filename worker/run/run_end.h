// RunEnd: the ways in which a run ends, or a generation of it alone; always at
// a committed step.
//
//   complete        all steps, --max-steps, patience
//   interrupt       Ctrl-C, resumable
//   refuse_step     a step that cannot be committed: not finite, or no memory
//                   under this plan, and the coordinator chooses another
//   leave_as_asked  other workers take part from here
//
// Ownership: borrows all it is given. Threads: the one that trains.
// Errors: as RunCheckpoints and RunRecorder.
#pragma once

#include <optional>
#include <string>

#include "parallel/base/check.h"
#include "worker/control/coordinator_client.h"
#include "worker/data/loader/batch.h"
#include "worker/run/run_checkpoints.h"
#include "worker/run/run_context.h"
#include "worker/run/run_reports.h"
#include "worker/step/fault_injection.h"
#include "worker/step/trainer.h"

namespace headroom::run {

// RunOutcome: how a run ended that ended as it should.

struct RunOutcome {
  int exit_code = 0;
  std::string reason;
  std::string result_json;
  // Only this generation ended: for want of memory (without room_bytes), or
  // because it was asked to.
  std::optional<control::LeftGeneration> left = {};
};

class RunEnd {
 public:
  RunEnd(RunContext& run, RunReports& reports, RunCheckpoints& checkpoints,
         step::FaultInjection& faults)
      : run_(run),
        reports_(reports),
        checkpoints_(checkpoints),
        faults_(faults) {}

  // Why the run is over; none: it goes on (run_milestones.h).
  std::optional<std::string> reason() const;
  RunOutcome complete(const std::string& reason);
  // `after`: "step 12".
  RunOutcome interrupt(const std::string& after);
  // Every rank comes here together; the state is that before the step.
  RunOutcome refuse_step(const step::StepResult& result,
                         const loader::Batch& batch);
  RunOutcome leave_as_asked();
  // A generation before this one had all but the end.
  RunOutcome catch_up(const std::string& reason);
  // A peer is lost, and nobody takes its place: what this rank has is saved.
  RunOutcome save_alone();

 private:
  RunOutcome leave_for_memory(const step::StepResult& result,
                              const std::string& where);
  RunOutcome end_generation(ExitCode exit_code, const std::string& reason);
  // Not that of a generation alone: pictures are drawn.
  RunOutcome end_run(ExitCode exit_code, const std::string& reason);
  std::string resume_hint() const;

  RunContext& run_;
  RunReports& reports_;
  RunCheckpoints& checkpoints_;
  step::FaultInjection& faults_;
};

}  // namespace headroom::run
