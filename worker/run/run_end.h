// The milestones after which an epoch or a run is over or a checkpoint is due,
// and RunEnd: the ways in which a run or a generation ends. Both end only at a
// committed step.
//
//   complete        all steps, --max-steps, --time, patience
//   interrupt       Ctrl-C, resumable
//   refuse_step     a step that is not finite
//   refuse_samples  the program of --augment-program failed, or an image
//                   that it was to change is damaged
//   leave_for_memory  too little memory for a step under this plan: the
//                   coordinator chooses another plan
//   leave_as_asked  the next generation has other workers
//   save_for_successors  the agent is lost, so this process must end
//
// A new generation checks the milestones at its start: the previous generation
// may have ended between a milestone and the work that follows it.
//
// Errors: as RunCheckpoints and RunRecorder.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "worker/checkpoint/peer_replicas.h"
#include "worker/control/coordinator_client.h"
#include "worker/data/loader/batch.h"
#include "worker/run/run_checkpoints.h"
#include "worker/run/run_context.h"
#include "worker/run/run_pictures.h"
#include "worker/run/run_recorder.h"
#include "worker/run/run_reports.h"
#include "worker/step/trainer.h"
#include "worker/step/training_state.h"

namespace headroom::run {

// Whether an epoch has just ended or no step was committed yet.
bool is_between_epochs(int64_t committed_steps, int64_t steps_in_epoch);

// Steps of the whole run.
int64_t num_steps(const configs::RunConfig& config, int64_t steps_in_epoch);

// Why the run is over; nullopt if it continues. At an epoch's end, call it
// after the results are recorded.
std::optional<std::string> reason_to_end(
    const configs::RunConfig& config, int64_t steps_in_epoch,
    const step::TrainingCounters& counters);

// The last committed step after which a checkpoint was due; 0 if no checkpoint
// was due.
int64_t newest_due_checkpoint(const configs::RunConfig& config,
                              int64_t steps_in_epoch, int64_t committed_steps);

// Whether checkpoint_every_steps asks for a checkpoint after this step.
bool is_checkpoint_scheduled(const configs::RunConfig& config,
                             int64_t committed_steps);

// Whether a checkpoint is due within an epoch because the newest checkpoint is
// as old as `age`.
bool is_checkpoint_due(const configs::RunConfig& config,
                       std::chrono::steady_clock::duration age);

// Whether --time is over.
bool is_time_over(const configs::RunConfig& config,
                  std::chrono::system_clock::time_point now);

// How a run or a generation ended without a failure.
struct RunOutcome {
  int exit_code = 0;
  std::string reason;
  std::string result_json;
  bool says_how_to_go_on = false;  // `reason` has the command that resumes
  // Set if only this generation ended, because memory was short (room_bytes is
  // filled in later) or the coordinator asked for it.
  std::optional<control::LeftGeneration> left = {};
  // The agent is lost, so this end cannot be reported.
  bool has_no_agent = false;
};

class RunEnd {
 public:
  // `buddies`: null if every rank has the whole state. `pictures`: null if this
  // rank draws no pictures.
  RunEnd(const RunContext& run, step::TrainingState& state,
         checkpoint::PeerReplicas* buddies, RunPictures* pictures,
         RunRecorder& recorder, RunReports& reports,
         RunCheckpoints& checkpoints)
      : run_(run),
        state_(state),
        buddies_(buddies),
        pictures_(pictures),
        recorder_(recorder),
        reports_(reports),
        checkpoints_(checkpoints) {}

  // As reason_to_end(). Within an epoch the text ends with the command that
  // continues the run.
  std::optional<std::string> reason() const;
  RunOutcome complete(const std::string& reason);
  // REQUIRES: the newest step's results are recorded.
  RunOutcome complete_in_time();
  // `after`: "step 12".
  RunOutcome interrupt(const std::string& after);
  // REQUIRES: the step has not changed the state. Collective.
  RunOutcome refuse_step(const step::StepResult& result,
                         const loader::Batch& batch);
  // `fault`: what is wrong with the samples of the next step, and what to do.
  // REQUIRES: a step is committed. Collective.
  RunOutcome refuse_samples(const std::string& fault);
  // `failed_rank` has no rung left that saves more memory under this plan;
  // `shortfall` is the shortfall of this rank. Collective.
  RunOutcome leave_for_memory(int failed_rank,
                              const MemoryShortfall& shortfall);
  RunOutcome leave_as_asked();
  RunOutcome save_for_successors();
  // Ends a run whose last step was committed in an earlier generation. `saved`:
  // steps of rank 0's newest checkpoint.
  RunOutcome catch_up(const std::string& reason, int64_t saved);
  // Saves this rank's state after a peer was lost and not replaced.
  RunOutcome save_alone();

 private:
  // Writes a checkpoint, and weights if no epoch has written any.
  void save();
  RunOutcome end_generation(ExitCode exit_code, const std::string& reason);
  // Saves and ends the run; the reason has the command that continues it.
  RunOutcome end_early(ExitCode exit_code, const std::string& reason);
  // Ends the whole run, after drawing its pictures.
  RunOutcome end_run(ExitCode exit_code, const std::string& reason);
  std::string resume_hint() const;

  int64_t committed() const { return state_.counters.committed_steps; }
  bool is_between_epochs() const {
    return run::is_between_epochs(committed(), run_.steps_in_epoch);
  }

  const RunContext& run_;
  step::TrainingState& state_;
  checkpoint::PeerReplicas* const buddies_;
  RunPictures* const pictures_;
  RunRecorder& recorder_;
  RunReports& reports_;
  RunCheckpoints& checkpoints_;
};

}  // namespace headroom::run
