// Continues the run of a job that its launcher has restarted. torchrun restarts
// all processes after a failure; they continue their run instead of beginning a
// second one.
//
// A file in the run's folder identifies the job that started it. It is the same
// job if the same torchrun process started it. If the first machine has
// changed, it is the same job if torchrun reports a restart and the job's name
// is equal.
#pragma once

#include <string>

#include "deploy/cli/args/command_line.h"
#include "deploy/cli/process/launcher_environment.h"

namespace headroom::cli {

// Writes into the run's folder which job trains it. Does nothing for a launcher
// that never restarts its processes.
void record_job(const LauncherJob& job, const std::string& run_directory);

// If an earlier start of the job has a run in the project's folder, changes
// `line` so that it resumes that run, or starts again in the run's folder if
// the run has no checkpoint. Returns a message about the change; "" if `line`
// is unchanged.
std::string go_on_with_earlier_run(const LauncherJob& job, CommandLine& line);

}  // namespace headroom::cli
