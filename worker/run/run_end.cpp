#include "worker/run/run_end.h"

#include <utility>

#include "parallel/base/utf8.h"
#include "worker/run/run_milestones.h"

namespace headroom::run {

std::optional<std::string> RunEnd::reason() const {
  auto reason =
      reason_to_end(run_.config, run_.steps_in_epoch, run_.state->counters);
  if (reason && !run_.is_between_epochs()) *reason += "; " + resume_hint();
  return reason;
}

RunOutcome RunEnd::complete(const std::string& reason) {
  checkpoints_.write();
  return end_run(ExitCode::kDone, reason);
}

RunOutcome RunEnd::interrupt(const std::string& after) {
  checkpoints_.write();
  return end_run(ExitCode::kInterrupted,
                 "interrupted after " + after + "; " + resume_hint());
}

RunOutcome RunEnd::refuse_step(const step::StepResult& result,
                               const loader::Batch& batch) {
  const data_parallel::Verdict& verdict = result.verdict;
  const std::string where = "step " + std::to_string(batch.step) + ", rank " +
                            std::to_string(verdict.rank) + ": ";
  if (verdict.outcome == data_parallel::Outcome::kMemoryExhausted) {
    return leave_for_memory(result, where);
  }
  const std::string reason = where +
                             "the loss or the gradient is not finite; lower "
                             "hyp.lr0, or --set skip_non_finite=true";
  if (run_.assignment.rank == 0) {
    run_.client.report_event(
        {"non_finite", batch.step, verdict.rank, reason, "", true});
  }
  checkpoints_.write();
  return end_run(ExitCode::kResource, reason + "; " + resume_hint());
}

// The last rung of the ladder: another plan, which the coordinator chooses.
RunOutcome RunEnd::leave_for_memory(const step::StepResult& result,
                                    const std::string& where) {
  control::LeftGeneration left;
  left.checkpoint = checkpoints_.write();
  left.committed_steps = run_.committed();
  left.failed_rank = result.verdict.rank;
  left.asked_bytes = result.shortfall.asked_bytes;
  left.free_bytes = result.shortfall.free_bytes;
  left.limit_bytes = result.shortfall.limit_bytes;
  RunOutcome outcome =
      end_generation(ExitCode::kResource,
                     where + "out of memory with the leanest activations");
  left.result_json = outcome.result_json;
  outcome.left = std::move(left);
  return outcome;
}

// Others come, or some of these go.
RunOutcome RunEnd::leave_as_asked() {
  checkpoints_.finish();
  control::LeftGeneration left;
  left.was_asked = true;
  left.committed_steps = run_.committed();
  left.holds_a_part = !run_.state->is_whole();
  left.checkpoint_steps = run_.checkpoint_steps;
  RunOutcome outcome =
      end_generation(ExitCode::kDone, "other workers take part");
  left.result_json = outcome.result_json;
  outcome.left = std::move(left);
  return outcome;
}

RunOutcome RunEnd::catch_up(const std::string& reason) {
  if (run_.checkpoint_steps < run_.committed()) checkpoints_.write();
  if (run_.pictures && run_.inputs.validation && run_.is_between_epochs()) {
    run_.pictures->say_what_is_lost();
  }
  return end_run(ExitCode::kDone, reason);
}

RunOutcome RunEnd::save_alone() {
  checkpoints_.write();
  return end_generation(ExitCode::kResource,
                        "stopped after step " +
                            std::to_string(run_.committed()) + "; " +
                            resume_hint());
}

RunOutcome RunEnd::end_generation(ExitCode exit_code,
                                  const std::string& reason) {
  checkpoints_.finish();
  return {static_cast<int>(exit_code), reason,
          run_.recorder->record_end(reason)};
}

RunOutcome RunEnd::end_run(ExitCode exit_code, const std::string& reason) {
  // Nobody needs the copies, but MPI takes a message that is never waited for
  // as a failure of its process.
  if (run_.buddies) run_.buddies->settle();
  RunOutcome outcome = end_generation(exit_code, reason);
  faults_.strike(configs::Fault::Phase::kEnd, run_.committed());
  if (run_.pictures) {
    reports_.show_phase("pictures");
    run_.pictures->finish();
  }
  return outcome;
}

std::string RunEnd::resume_hint() const {
  return "continue with: headroom train --resume " +
         shell_word(run_.assignment.run_directory);
}

}  // namespace headroom::run
