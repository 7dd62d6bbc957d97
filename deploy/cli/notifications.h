// notifications: who else is told of a run, as the command line asks for it.
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

// The TrainJob whose pod this is. Says where it cannot be told: no run fails
// for that.
std::optional<notify::TrainJobServer> requested_trainjob(
    const CommandLine& line, Terminal& terminal);

// What a TrainJob shows of it; nothing before the first step is known.
std::optional<notify::TrainProgress> train_progress(
    const std::optional<coordinator::RunStatus>& status);

// The run that others are told of. Says so where MLflow had it before and is
// named no more. Borrows the terminal.
notify::Notifier::Run run_to_notify(const RunRequest& request,
                                    const notify::Addressees& addressees,
                                    Terminal& terminal);

}  // namespace headroom::cli
