// The program's commands, one function and one file each. A command returns the
// program's exit code. It throws Error, which main() prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/args/command_line.h"
#include "deploy/cli/process/agent.h"
#include "deploy/cli/process/launcher_environment.h"
#include "parallel/base/terminal.h"

namespace headroom::cli {

// Makes this process use --certs, --token-file and --insecure-network for all
// its connections, as a client of the coordinator at `address`. Throws Error
// (exit 2) if the traffic would be unprotected without permission.
SecurityFiles take_identity(const CommandLine& line,
                            const std::string& address);

// The options with which this process becomes an agent of the coordinator at
// `coordinator`, from its flags and its position under a launcher. Uses
// take_identity(). Borrows the terminal.
AgentOptions agent_options(const CommandLine& line,
                           const std::string& coordinator, int processes,
                           const std::optional<LauncherJob>& job,
                           Terminal& terminal);

int train_command(const CommandLine& line);  // runs train and val
int coordinator_command(const CommandLine& line);
int agent_command(const CommandLine& line);
int status_command(const CommandLine& line);
int page_command(const CommandLine& line);
int report_command(const CommandLine& line);
int fetch_command(const CommandLine& line);
int plan_command(const CommandLine& line);
// The hidden command "notify SERVICE", which headroom train starts as a
// separate program (deploy/notify/delivery.h). No help text lists it.
int notify_command(const std::vector<std::string>& words);
// Replaces this process by the program that loads LibTorch, with these
// arguments: that program then provides the exit code and the output, and
// handles Ctrl-C. `headroom worker ARGUMENTS` only calls this function.
[[noreturn]] void become_worker(std::vector<std::string> arguments);
// Runs the tools (worker/tools/tool_command.h) and val --detections in the
// worker program.
[[noreturn]] void worker_command(const CommandLine& line);

}  // namespace headroom::cli
