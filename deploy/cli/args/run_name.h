// The name of a run: which folder its results go to.
//
// As in YOLOv5: runs/train/exp, then exp2, exp3, …; --exist-ok uses exp again.
// The process that starts the coordinator chooses the name, once. The
// supervisor of the run creates the folder (process/run_folder.h) and removes
// it again where the run is refused.
#pragma once

#include <filesystem>
#include <string>

#include "configs/run_config.h"

namespace headroom::cli {

// config.project, or the command's own under the working directory.
std::filesystem::path project_folder(const configs::RunConfig& config);

// Absolute. The first free name unless config.exist_ok.
std::filesystem::path new_run_directory(const configs::RunConfig& config);

// --resume: `given` if there is one, else the newest run of the project. A run
// is resumable if it has run.yaml and checkpoints/. Absolute. Throws Error
// (exit 2) that says what was looked for.
std::filesystem::path run_directory_to_resume(
    const std::filesystem::path& project, const std::string& given);

}  // namespace headroom::cli
