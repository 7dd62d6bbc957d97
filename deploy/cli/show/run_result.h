// The output at a run's end, as text and as one JSON document. The content of
// summary.json arrives as text in RunStatus::result_json; members that it lacks
// are not shown.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "coordinator/run/run_status.h"
#include "deploy/cli/process/agent.h"
#include "deploy/records/run_places.h"

namespace headroom::cli {

// The text on standard output after a run that ended well.
std::string result_text(const configs::RunConfig& config,
                        const coordinator::RunStatus& status);

// The members of summary.json, and exit_code, reason and run_directory.
std::string result_json(const RunExit& end, const std::string& run_directory,
                        const std::string& summary_json);

// The command that resumes a run that stopped early; "" if the run saved
// nothing or its reason contains the command already.
std::string resume_hint(const RunExit& end, const std::string& run_directory);

// A summary of a run directory, as text or as one JSON document: progress, end
// and results. Throws Error (exit 2) if the folder is not a run's.
std::string folder_summary(const std::string& run_directory);
std::string folder_summary_json(const std::string& run_directory);

// The runs, one line each: state, the settings in which they differ, the best
// epoch's mAP, the largest peak of tensor memory, the median speed and the time
// that the run took. A run whose run.yaml cannot be read has no settings.
std::string runs_table(const std::vector<records::RunPlace>& places);
std::string runs_json(const std::vector<records::RunPlace>& places);

// The state of a live run, as far as its files contain it: progress, memory of
// each rank, newest events. The number of steps per epoch is known only after
// the first epoch. Throws as folder_summary() does.
coordinator::RunStatus folder_status(const std::string& run_directory);

// The end of a run as it is written in the run's folder.
struct WrittenEnd {
  int exit_code = 0;
  std::string reason;
  std::string summary_json;
};

// nullopt if the folder has no end that was written since `not_before`.
std::optional<WrittenEnd> written_end(
    const std::string& run_directory,
    std::filesystem::file_time_type not_before);

}  // namespace headroom::cli
