// The program's commands, one function and one file each. A command returns the
// program's exit code. It throws Error, which main() prints.
#pragma once

#include "deploy/cli/args/command_line.h"
#include "deploy/cli/process/agent.h"

namespace headroom::cli {

// Makes this process use --certs, --token-file and --insecure-network for all
// its connections, as a client of the coordinator at `address`. Throws Error
// (exit 2) if the traffic would be unprotected without permission.
SecurityFiles take_identity(const CommandLine& line,
                            const std::string& address);

int train_command(const CommandLine& line);  // also val
int coordinator_command(const CommandLine& line);
int agent_command(const CommandLine& line);
int status_command(const CommandLine& line);
int page_command(const CommandLine& line);
int report_command(const CommandLine& line);
int plan_command(const CommandLine& line);
// "notify SERVICE": a program of headroom train (deploy/notify/delivery.h),
// which is in no help.
int notify_command(const std::vector<std::string>& words);
// Replaces this process by headroom-worker, which can use tensors: for the
// tools (worker/tools/tool_command.h) and val --detections.
int worker_command(const CommandLine& line);

}  // namespace headroom::cli
