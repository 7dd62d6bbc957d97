// The steps after which an epoch or a run is over and a checkpoint is due, and
// RunEnd: the ways in which a run ends, or a generation of it alone; always at
// a committed step.
//
//   complete        all steps, --max-steps, patience
//   interrupt       Ctrl-C, resumable
//   refuse_step     a step that is not finite
//   leave_for_memory  no memory for a step under this plan: the coordinator
//                   chooses another
//   leave_as_asked  other workers take part from here
//   save_for_successors  the agent is lost, and this process ends with it
//
// A generation asks for the milestones too: the one before it may have been cut
// off between a milestone and what was to follow.
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
#include "worker/run/run_pictures.h"
#include "worker/run/run_recorder.h"
#include "worker/run/run_reports.h"
#include "worker/step/fault_injection.h"
#include "worker/step/trainer.h"
#include "worker/step/training_state.h"

namespace headroom::run {

// Whether an epoch's last step is the newest, or there is none yet.
bool is_between_epochs(int64_t committed_steps, int64_t steps_in_epoch);

// Steps of the whole run.
int64_t num_steps(const configs::RunConfig& config, int64_t steps_in_epoch);

// Why the run is over; nothing while it goes on. At an epoch's end, once its
// results are recorded.
std::optional<std::string> reason_to_end(
    const configs::RunConfig& config, int64_t steps_in_epoch,
    const step::TrainingCounters& counters);

// The last committed step after which a checkpoint was due; 0: none.
int64_t newest_due_checkpoint(const configs::RunConfig& config,
                              int64_t steps_in_epoch, int64_t committed_steps);

// Whether this step is one of checkpoint_every_steps.
bool is_checkpoint_scheduled(const configs::RunConfig& config,
                             int64_t committed_steps);

// Whether one is due within an epoch because the last was so long ago.
bool is_checkpoint_due(const configs::RunConfig& config,
                       std::chrono::steady_clock::duration age);

// How a run ended that ended as it should.
struct RunOutcome {
  int exit_code = 0;
  std::string reason;
  std::string result_json;
  bool says_how_to_go_on = false;  // `reason` has the command that resumes it
  // Only this generation ended: for want of memory (without room_bytes), or
  // because it was asked to.
  std::optional<control::LeftGeneration> left = {};
  // Nobody hears of this end: the agent is lost.
  bool has_no_agent = false;
};

class RunEnd {
 public:
  struct Inputs {
    const configs::RunConfig& config;
    const control::Assignment& assignment;
    step::TrainingState& state;
    int64_t steps_in_epoch = 0;
    bool validates = false;                       // there is a val split
    checkpoint::PeerReplicas* buddies = nullptr;  // null: the state is whole
    RunPictures* pictures = nullptr;              // null: this rank draws none
    control::CoordinatorClient& client;
    RunRecorder& recorder;
    RunReports& reports;
    RunCheckpoints& checkpoints;
    step::FaultInjection& faults;
  };
  explicit RunEnd(const Inputs& inputs) : in_(inputs) {}

  // What reason_to_end() says, and how to go on.
  std::optional<std::string> reason() const;
  RunOutcome complete(const std::string& reason);
  // `after`: "step 12".
  RunOutcome interrupt(const std::string& after);
  // Every rank comes here together; the state is that before the step.
  RunOutcome refuse_step(const step::StepResult& result,
                         const loader::Batch& batch);
  // `failed_rank` has nothing leaner left under this plan; `shortfall` is this
  // rank's own. Every rank comes here together.
  RunOutcome leave_for_memory(int failed_rank,
                              const MemoryShortfall& shortfall);
  RunOutcome leave_as_asked();
  RunOutcome save_for_successors();
  // A generation before this one had all but the end.
  // `saved`: steps of rank 0's newest checkpoint.
  RunOutcome catch_up(const std::string& reason, int64_t saved);
  // A peer is lost, and nobody takes its place: what this rank has is saved.
  RunOutcome save_alone();

 private:
  // A checkpoint, and weights where no epoch has left any.
  void save();
  RunOutcome end_generation(ExitCode exit_code, const std::string& reason);
  // Saves, and ends the run with a reason that says how to go on.
  RunOutcome end_early(ExitCode exit_code, const std::string& reason);
  // Ends the run, not a generation alone: pictures are drawn.
  RunOutcome end_run(ExitCode exit_code, const std::string& reason);
  std::string resume_hint() const;

  int64_t committed() const { return in_.state.counters.committed_steps; }
  bool is_between_epochs() const {
    return run::is_between_epochs(committed(), in_.steps_in_epoch);
  }

  const Inputs in_;
};

}  // namespace headroom::run
