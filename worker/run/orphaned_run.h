// Saves the part of a run's state that a worker holds, if the coordinator is
// gone and a peer was lost. Then no process is left that could choose a
// survivor to save the state.
#pragma once

#include <string>

#include "worker/run/starting_state.h"

namespace headroom::run {

// Saves the newest state that `carried` holds, together with the copies of
// other survivors, and completes steps.jsonl. Returns one line that says what
// was done; "" if no step was committed. Takes at most about 20 s.
// Errors: Error with exit code 5 if a file cannot be written; std::bad_alloc.
std::string save_orphaned_run(const CrossGenerationState& carried);

}  // namespace headroom::run
