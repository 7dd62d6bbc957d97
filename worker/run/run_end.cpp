#include "worker/run/run_end.h"

#include <algorithm>
#include <utility>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::run {

bool is_between_epochs(int64_t committed_steps, int64_t steps_in_epoch) {
  return committed_steps % steps_in_epoch == 0;
}

int64_t num_steps(const configs::RunConfig& config, int64_t steps_in_epoch) {
  const int64_t all = config.epochs * steps_in_epoch;
  return config.max_steps > 0 ? std::min(all, config.max_steps) : all;
}

std::optional<std::string> reason_to_end(
    const configs::RunConfig& config, int64_t steps_in_epoch,
    const step::TrainingCounters& counters) {
  const int64_t committed = counters.committed_steps;
  const int64_t all = num_steps(config, steps_in_epoch);
  const bool is_epoch_end = is_between_epochs(committed, steps_in_epoch);
  if (committed >= all) {
    return is_epoch_end ? (all == 1 ? "the only step is done"
                                    : cat("all ", all, " steps done"))
                        : cat("reached --max-steps ", all);
  }
  const int64_t epoch = counters.recorded_epochs - 1;
  if (is_epoch_end && config.patience > 0 && counters.best_epoch >= 0 &&
      epoch - counters.best_epoch >= config.patience) {
    return cat("no progress in ", counted(config.patience, "epoch"),
               " (--patience); the best was epoch ", counters.best_epoch + 1);
  }
  return std::nullopt;
}

int64_t newest_due_checkpoint(const configs::RunConfig& config,
                              int64_t steps_in_epoch, int64_t committed_steps) {
  const auto newest = [&](int64_t every) {
    return committed_steps - committed_steps % every;
  };
  int64_t due = config.nosave ? 0 : newest(steps_in_epoch);
  if (config.checkpoint_every_steps > 0) {
    due = std::max(due, newest(config.checkpoint_every_steps));
  }
  return due;
}

bool is_checkpoint_scheduled(const configs::RunConfig& config,
                             int64_t committed_steps) {
  return config.checkpoint_every_steps > 0 &&
         committed_steps % config.checkpoint_every_steps == 0;
}

bool is_checkpoint_due(const configs::RunConfig& config,
                       std::chrono::steady_clock::duration age) {
  return !config.nosave && config.checkpoint_every_steps == 0 &&
         age >= std::chrono::seconds(configs::kSecondsBetweenCheckpoints);
}

bool is_time_over(const configs::RunConfig& config,
                  std::chrono::system_clock::time_point now) {
  return config.ends_at > 0 &&
         now.time_since_epoch() >= std::chrono::seconds(config.ends_at);
}

std::optional<std::string> RunEnd::reason() const {
  auto reason =
      reason_to_end(run_.config, run_.steps_in_epoch, state_.counters);
  if (reason && !is_between_epochs()) {
    // The run ended by its --max-steps; with that limit a resumed run would
    // stop at once.
    *reason += "; " + resume_hint() + " --max-steps 0";
  }
  return reason;
}

void RunEnd::save() {
  checkpoints_.write();
  if (committed() == 0) return;
  const bool is_saved =
      state_.counters.recorded_epochs > 0 && !recorder_.has_skipped_epoch();
  if (!is_saved) recorder_.save_unfinished_epoch();
}

RunOutcome RunEnd::complete(const std::string& reason) {
  save();
  return end_run(ExitCode::kDone, reason);
}

RunOutcome RunEnd::complete_in_time() {
  return complete(cat("reached --time ", significant_text(run_.config.hours, 6),
                      " after step ", committed(), "; ", resume_hint()));
}

RunOutcome RunEnd::interrupt(const std::string& after) {
  return end_early(ExitCode::kInterrupted, "interrupted after " + after);
}

RunOutcome RunEnd::refuse_step(const step::StepResult& result,
                               const loader::Batch& batch) {
  const data_parallel::Verdict& verdict = result.verdict;
  const std::string reason =
      cat("step ", batch.step, ", rank ", verdict.rank,
          ": the loss or the gradient is not finite; lower "
          "hyp.lr0, or --set skip_non_finite=true");
  if (run_.rank == 0) {
    run_.client.report_event({.event = EventKind::kNonFinite,
                              .step = batch.step,
                              .rank = verdict.rank,
                              .reason = reason,
                              .warning = true});
  }
  return end_early(ExitCode::kResource, reason);
}

RunOutcome RunEnd::refuse_samples(const std::string& fault) {
  return end_early(ExitCode::kData,
                   cat(fault, "; the state after ",
                       counted(committed(), "step"), " is saved"));
}

// No rung of the memory ladder is left: the coordinator chooses another plan.
RunOutcome RunEnd::leave_for_memory(int failed_rank,
                                    const MemoryShortfall& shortfall) {
  control::LeftGeneration left;
  left.checkpoint = checkpoints_.write();
  left.committed_steps = committed();
  left.failed_rank = failed_rank;
  left.shortfall = shortfall;
  RunOutcome outcome = end_generation(
      ExitCode::kResource, cat("step ", committed(), ", rank ", failed_rank,
                               ": out of memory with the leanest activations"));
  left.result_json = outcome.result_json;
  outcome.left = std::move(left);
  return outcome;
}

RunOutcome RunEnd::leave_as_asked() {
  // The buddy keeps the part of a rank that leaves for good.
  if (buddies_ != nullptr) buddies_->settle();
  checkpoints_.finish();
  control::LeftGeneration left;
  left.was_asked = true;
  left.committed_steps = committed();
  left.holds_a_part = !state_.is_whole();
  left.checkpoint_steps = checkpoints_.newest_steps();
  RunOutcome outcome =
      end_generation(ExitCode::kDone, "other workers take part");
  left.result_json = outcome.result_json;
  outcome.left = std::move(left);
  return outcome;
}

RunOutcome RunEnd::save_for_successors() {
  checkpoints_.write();
  return {.exit_code = static_cast<int>(ExitCode::kResource),
          .reason = "the agent is lost",
          .result_json = "",
          .has_no_agent = true};
}

RunOutcome RunEnd::catch_up(const std::string& reason, int64_t saved) {
  if (saved < committed()) checkpoints_.write();
  if (pictures_ != nullptr && run_.data.validation && is_between_epochs()) {
    pictures_->say_what_is_lost();
  }
  return end_run(ExitCode::kDone, reason);
}

RunOutcome RunEnd::save_alone() {
  save();
  RunOutcome outcome = end_generation(
      ExitCode::kResource,
      cat("stopped after step ", committed(), "; ", resume_hint()));
  outcome.says_how_to_go_on = true;
  return outcome;
}

RunOutcome RunEnd::end_early(ExitCode exit_code, const std::string& reason) {
  save();
  RunOutcome outcome = end_run(exit_code, reason + "; " + resume_hint());
  outcome.says_how_to_go_on = true;
  return outcome;
}

RunOutcome RunEnd::end_generation(ExitCode exit_code,
                                  const std::string& reason) {
  checkpoints_.finish();
  return {.exit_code = static_cast<int>(exit_code),
          .reason = reason,
          .result_json = recorder_.record_end(exit_code, reason)};
}

RunOutcome RunEnd::end_run(ExitCode exit_code, const std::string& reason) {
  // The buddies' copies are not needed any more, but MPI treats a message that
  // is never waited for as a failure.
  if (buddies_ != nullptr) buddies_->settle();
  RunOutcome outcome = end_generation(exit_code, reason);
  run_.faults.strike(configs::Fault::Phase::kEnd, committed());
  if (pictures_ != nullptr) {
    reports_.show_phase(wire::WorkerPhase::kPictures);
    pictures_->finish();
    recorder_.record_pictures();
  }
  return outcome;
}

std::string RunEnd::resume_hint() const {
  if (RunDirectory(run_.assignment.run_directory).holds_older_run()) {
    return "no step was committed, and the older run in " +
           run_.assignment.run_directory + " is as it was";
  }
  const std::string& program = run_.config.augment_program;
  return "continue with: headroom train --resume " +
         shell_word(run_.assignment.run_directory) +
         (program.empty() ? "" : " --augment-program " + shell_word(program));
}

}  // namespace headroom::run
