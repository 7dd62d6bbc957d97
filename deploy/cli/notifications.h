// Reads from the command line which services receive a run's progress.
#pragma once

#include <functional>
#include <optional>

#include "coordinator/run/run_status.h"
#include "deploy/cli/args/command_line.h"
#include "deploy/cli/run_request.h"
#include "deploy/cli/show/terminal.h"
#include "deploy/notify/notifier.h"

namespace headroom::cli {

// Throws Error (exit 2) for flags that cannot be met.
notify::Addressees requested_addressees(const CommandLine& line);

// The TrainJob to which this pod belongs. If it cannot be reached, prints a
// warning and returns nullopt: no run fails because of it.
std::optional<notify::TrainJobServer> requested_trainjob(
    const CommandLine& line, Terminal& terminal);

// The progress that a TrainJob displays; nullopt before the first step.
std::optional<notify::TrainProgress> train_progress(
    const std::optional<coordinator::RunStatus>& status);

// The run as the services see it. Prints a line if MLflow recorded it before
// and no flag names MLflow any more. Keeps a reference to the terminal.
notify::Notifier::Run run_to_notify(const RunRequest& request,
                                    const notify::Addressees& addressees,
                                    Terminal& terminal);

}  // namespace headroom::cli
