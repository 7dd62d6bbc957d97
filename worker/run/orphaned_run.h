// Saves what a worker holds of a run whose coordinator is gone, after a peer
// was lost: no other process is left that could tell the survivors who saves.
#pragma once

#include <string>

#include "worker/run/starting_state.h"

namespace headroom::run {

// Saves the newest state that `carried` holds, together with the copies of
// other survivors, and completes steps.jsonl. Returns one line that says what
// was done; "" if no step was committed. Takes at most about 20 s. Throws no
// exception: the process is about to end.
std::string save_orphaned_run(const CrossGenerationState& carried) noexcept;

}  // namespace headroom::run
