// notifications: who else is told of a run, as the command line asks for it.
#pragma once

#include "deploy/cli/args/command_line.h"
#include "deploy/cli/run_request.h"
#include "deploy/cli/show/terminal.h"
#include "deploy/notify/notifier.h"

namespace headroom::cli {

// Throws Error (exit 2) for flags that cannot be met.
notify::Addressees requested_addressees(const CommandLine& line);

// The run that others are told of. Says so where MLflow had it before and is
// named no more. Borrows the terminal.
notify::Notifier::Run run_to_notify(const RunRequest& request,
                                    const notify::Addressees& addressees,
                                    Terminal& terminal);

}  // namespace headroom::cli
