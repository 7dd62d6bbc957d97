// The steps after which an epoch or a run is over or a checkpoint is due, and
// RunEnd: the ways in which a run, or one generation of it, ends; always at a
// committed step.
//
//   complete        all steps, --max-steps, patience
//   interrupt       Ctrl-C, resumable
//   refuse_step     a step that is not finite
//   leave_for_memory  no memory for a step under this plan: the coordinator
//                   chooses another
//   leave_as_asked  the next generation has other workers
//   save_for_successors  the agent is lost, and this process ends with it
//
// A new generation checks the milestones at its start: the one before may have
// ended between a milestone and the work that follows it.
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

// Whether the newest step was an epoch's last, or there is none yet.
bool is_between_epochs(int64_t committed_steps, int64_t steps_in_epoch);

// Steps of the whole run.
int64_t num_steps(const configs::RunConfig& config, int64_t steps_in_epoch);

// Why the run is over; nothing while it goes on. At an epoch's end it is called
// after the results are recorded.
std::optional<std::string> reason_to_end(
    const configs::RunConfig& config, int64_t steps_in_epoch,
    const step::TrainingCounters& counters);

// The last committed step after which a checkpoint was due; 0: none.
int64_t newest_due_checkpoint(const configs::RunConfig& config,
                              int64_t steps_in_epoch, int64_t committed_steps);

// Whether this step is one of checkpoint_every_steps.
bool is_checkpoint_scheduled(const configs::RunConfig& config,
                             int64_t committed_steps);

// Whether a checkpoint is due within an epoch because the newest is old.
bool is_checkpoint_due(const configs::RunConfig& config,
                       std::chrono::steady_clock::duration age);

// How a run or a generation ended without a failure.
struct RunOutcome {
  int exit_code = 0;
  std::string reason;
  std::string result_json;
  bool says_how_to_go_on = false;  // `reason` has the command that resumes it
  // Set if only this generation ended: memory was short (room_bytes is filled
  // in later), or the coordinator asked it to end.
  std::optional<control::LeftGeneration> left = {};
  // The agent is lost: this end cannot be reported.
  bool has_no_agent = false;
};

class RunEnd {
 public:
  // `buddies`: null if every rank has the whole state. `pictures`: null if this
  // rank draws none.
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

  // reason_to_end(), with the command that continues the run.
  std::optional<std::string> reason() const;
  RunOutcome complete(const std::string& reason);
  // `after`: "step 12".
  RunOutcome interrupt(const std::string& after);
  // All ranks call it together; the state is that before the step.
  RunOutcome refuse_step(const step::StepResult& result,
                         const loader::Batch& batch);
  // `failed_rank` has nothing leaner left under this plan; `shortfall` is this
  // rank's own. All ranks call it together.
  RunOutcome leave_for_memory(int failed_rank,
                              const MemoryShortfall& shortfall);
  RunOutcome leave_as_asked();
  RunOutcome save_for_successors();
  // For a run whose last step an earlier generation committed. `saved`: steps
  // of rank 0's newest checkpoint.
  RunOutcome catch_up(const std::string& reason, int64_t saved);
  // A peer is lost and is not replaced: saves this rank's state.
  RunOutcome save_alone();

 private:
  // Writes a checkpoint, and weights if no epoch has written any.
  void save();
  RunOutcome end_generation(ExitCode exit_code, const std::string& reason);
  // Saves, and ends the run; the reason has the command that continues it.
  RunOutcome end_early(ExitCode exit_code, const std::string& reason);
  // Ends the whole run: pictures are drawn.
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
