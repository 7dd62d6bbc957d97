// A job that its launcher starts again: torchrun starts all processes anew
// after a failure, and the run that they had goes on instead of a second one.
//
// A run's folder names the job that started it. It is the same job if the same
// torchrun started it, or, where its first machine has changed, if torchrun
// says that it starts it again and the job's name is the same.
#pragma once

#include <string>

#include "deploy/cli/args/command_line.h"
#include "deploy/cli/process/launcher_environment.h"

namespace headroom::cli {

// Notes in the run's folder which job trains it. Nothing for a launcher that
// starts nothing again.
void record_job(const LauncherJob& job, const std::string& run_directory);

// Where an earlier start of the job has a run in the project's folder, `line`
// becomes the command that resumes it, or that begins in its folder where it
// has no checkpoint yet. Returns a line that says so; "" where nothing changes.
std::string go_on_with_earlier_run(const LauncherJob& job, CommandLine& line);

}  // namespace headroom::cli
