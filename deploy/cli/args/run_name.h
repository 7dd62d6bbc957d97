// The name of a run: the folder for its results.
//
// As in YOLOv5: runs/train/exp, then exp2, exp3, …; --exist-ok uses exp again.
// The process that starts the coordinator chooses the name, once. The
// supervisor of the run creates the folder (process/run_folder.h) and removes
// it again if the run is refused.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "configs/run_config.h"

namespace headroom::cli {

// config.project, or the command's default under the working directory.
std::filesystem::path project_folder(const configs::RunConfig& config);

// Returns the absolute path of the run's folder: the first unused name, or with
// config.exist_ok the name itself.
std::filesystem::path new_run_directory(const configs::RunConfig& config);

// Considers the runs in the project's folder that have a `timed_file` and for
// which `belongs` is true. Returns the run whose `timed_file` is the newest; ""
// if there is none.
std::filesystem::path newest_run(
    const std::filesystem::path& project, const char* timed_file,
    const std::function<bool(const std::filesystem::path&)>& belongs);

// --resume: `given` if set, otherwise the newest run of the project. A run is
// resumable if it has run.yaml and checkpoints/. Absolute. Throws Error (exit
// 2) with the folders and files that were looked for, or if the newest state is
// on another machine (folder_place.h).
std::filesystem::path run_directory_to_resume(
    const std::filesystem::path& project, const std::string& given);

}  // namespace headroom::cli
