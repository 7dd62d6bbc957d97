// plan_files: a planned run as two files, run.yaml and plan.json, for a worker
// that runs without a coordinator (headroom-worker --standalone).
//
// Threads: any. Errors: Error (exit 2) when a file is there already or cannot
// be written.
#pragma once

#include <filesystem>

#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom::cli {

// Makes `folder` where there is none.
void write_plan_files(const std::filesystem::path& folder,
                      const configs::RunConfig& config, const plan::Plan& plan);

}  // namespace headroom::cli
