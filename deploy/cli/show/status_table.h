// Formats a RunStatus as a text table, and as JSON.
#pragma once

#include <string>

#include "coordinator/run/run_status.h"

namespace headroom::cli {

// The run's folder, and its machine if this one does not have it.
std::string folder_text(const coordinator::RunStatus& status);
std::string status_table(const coordinator::RunStatus& status);
std::string status_json(const coordinator::RunStatus& status);

}  // namespace headroom::cli
