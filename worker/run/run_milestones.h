// run_milestones: after which steps an epoch or a run is over, and a checkpoint
// is due.
//
// A generation asks too: the one before it may have been cut off between a
// milestone and what was to follow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "configs/run_config.h"
#include "worker/step/training_state.h"

namespace headroom::run {

// Whether an epoch's last step is the newest, or there is none yet.
bool is_between_epochs(int64_t committed_steps, int64_t steps_in_epoch);

// Of the whole run.
int64_t num_steps(const configs::RunConfig& config, int64_t steps_in_epoch);

// Why the run is over; none: it goes on. At an epoch's end, once its results
// are recorded.
std::optional<std::string> reason_to_end(
    const configs::RunConfig& config, int64_t steps_in_epoch,
    const step::TrainingCounters& counters);

// The last of the committed steps after which a checkpoint was due; 0: none.
int64_t newest_due_checkpoint(const configs::RunConfig& config,
                              int64_t steps_in_epoch, int64_t committed_steps);

}  // namespace headroom::run
