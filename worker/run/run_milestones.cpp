#include "worker/run/run_milestones.h"

#include <algorithm>

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
    return is_epoch_end ? "all " + std::to_string(all) + " steps done"
                        : "reached --max-steps " + std::to_string(all);
  }
  const int64_t epoch = counters.recorded_epochs - 1;
  if (is_epoch_end && config.patience > 0 && counters.best_epoch >= 0 &&
      epoch - counters.best_epoch >= config.patience) {
    return "no progress in " + std::to_string(config.patience) +
           " epochs (--patience); the best was epoch " +
           std::to_string(counters.best_epoch + 1);
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

}  // namespace headroom::run
