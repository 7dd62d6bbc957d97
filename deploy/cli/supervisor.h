// Supervisor: starts the coordinator and this host's agent as processes of
// their own, shows the run's progress, and sees everything to its end.
//
//   headroom train ── headroom coordinator
//                 └── headroom agent ── headroom-worker, one per device
//
// No child is left behind: each is killed when this process dies, however it
// does.
//
// Threads: supervise() is called from main (child_process.h says why).
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "coordinator/run/run_status.h"
#include "deploy/cli/process/agent.h"
#include "deploy/cli/run_request.h"
#include "deploy/cli/show/terminal.h"

namespace headroom::cli {

struct SupervisorOptions {
  RunRequest request;
  std::string listen = "127.0.0.1:0";  // ServerOptions::listen
  SecurityFiles security;
  std::string interface;     // AgentOptions::interface
  std::string log;           // file of the coordinator's decisions
  std::string metrics;       // HOST:PORT of --metrics; "" for none
  std::string spot = "off";  // the agent's --spot
  std::filesystem::path headroom_program;
  // Called with its address once the coordinator listens.
  std::function<void(const std::string&)> on_address;
  // Called with each status that is seen.
  std::function<void(const coordinator::RunStatus&)> on_status;
  std::function<int()> interrupts;
};

struct SupervisedRun {
  RunExit end;
  coordinator::RunStatus
      status;  // the last one seen; without members if there was none
};

// Never throws for what happens to a child: that is the run's end, with its
// last words as the reason. Throws Error if a child cannot be started.
SupervisedRun supervise(const SupervisorOptions& options, Terminal& terminal);

}  // namespace headroom::cli
