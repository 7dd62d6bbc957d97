// What is said at a run's end: for people, and as one JSON document.
//
// summary.json's content travels as text in RunStatus::result_json; what of it
// is there is shown.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "configs/run_config.h"
#include "coordinator/run/run_status.h"
#include "deploy/cli/process/agent.h"

namespace headroom::cli {

// What standard output gets after a run that ended well.
std::string result_text(const configs::RunConfig& config,
                        const coordinator::RunStatus& status);

// summary.json's members, and exit_code, reason, run_directory.
std::string result_json(const RunExit& end, const std::string& run_directory,
                        const std::string& summary_json);

// How to go on with a run that stopped early; "" when it saved nothing or its
// reason says so already.
std::string resume_hint(const RunExit& end, const std::string& run_directory);

// What the files of a run directory say of its run, for people or as one JSON
// document: how far it came, how it ended, its results. Throws Error (exit 2)
// if the folder is none of a run.
std::string folder_summary(const std::string& run_directory);
std::string folder_summary_json(const std::string& run_directory);

// The state of a run that goes on, as far as its files tell: its progress, each
// rank's memory, the newest events. The number of steps of an epoch is known
// once an epoch has ended. Throws as folder_summary().
coordinator::RunStatus folder_status(const std::string& run_directory);

// A run's end as it wrote it into its folder itself.
struct WrittenEnd {
  int exit_code = 0;
  std::string reason;
  std::string summary_json;
};

// Nothing if its folder has none that was written at `not_before` or later.
std::optional<WrittenEnd> written_end(
    const std::string& run_directory,
    std::filesystem::file_time_type not_before);

}  // namespace headroom::cli
