// The program's commands, one function and one file each. A command returns the
// program's exit code; Errors are main's to print.
#pragma once

#include "deploy/cli/args/command_line.h"
#include "deploy/cli/process/agent.h"

namespace headroom::cli {

// --certs, --token-file and --insecure-network. This process speaks with them
// from now on, as one of the clients of the coordinator at `address`. Throws
// Error (exit 2) if they do not protect what it says.
SecurityFiles take_identity(const CommandLine& line,
                            const std::string& address);

int train_command(const CommandLine& line);  // val too
int coordinator_command(const CommandLine& line);
int agent_command(const CommandLine& line);
int status_command(const CommandLine& line);
int page_command(const CommandLine& line);
int report_command(const CommandLine& line);
int plan_command(const CommandLine& line);
// Becomes headroom-worker, which has the tensors and reads data sets: for the
// tools (worker/tools/tool_command.h), val --detections among them.
int worker_command(const CommandLine& line);

}  // namespace headroom::cli
