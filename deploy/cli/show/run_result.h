// What is said at a run's end: for people, and as one JSON document.
//
// summary.json's content travels as text in RunStatus::result_json; what of it
// is there is shown.
#pragma once

#include <string>

#include "configs/run_config.h"
#include "coordinator/run/run_status.h"
#include "deploy/cli/process/agent.h"

namespace headroom::cli {

// For standard output, after a run that ended well.
std::string result_text(const configs::RunConfig& config,
                        const coordinator::RunStatus& status);

// summary.json's members, and exit_code, reason, run_directory.
std::string result_json(const RunExit& end, const std::string& run_directory,
                        const std::string& summary_json);

// How to go on with a run that stopped early; "" when it saved nothing or its
// reason says so already.
std::string resume_hint(const RunExit& end, const std::string& run_directory);

}  // namespace headroom::cli
