// RunStatus as people read it, and as JSON.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "coordinator/run_status.h"

namespace headroom {

std::string status_table(const RunStatus& status);
std::string status_json(const RunStatus& status);

}  // namespace headroom
