// Supervisor: starts the coordinator and this host's agent as child processes,
// shows the run's progress, and returns when all have ended.
//
//   headroom train ── headroom coordinator
//                 └── headroom agent ── headroom-worker, one per device
//
// No child outlives this process for long, however it ends: the kernel kills
// the coordinator and the agent; workers save their state before they end.
//
// Threads: supervise() is called from the main thread (child_process.h gives
// the reason).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "coordinator/run/run_status.h"
#include "deploy/cli/process/agent.h"
#include "deploy/cli/run_request.h"
#include "parallel/base/terminal.h"

namespace headroom::cli {

struct SupervisorOptions {
  RunRequest request;
  std::string listen = "127.0.0.1:0";  // ServerOptions::listen
  SecurityFiles security;
  std::string interface;     // AgentOptions::interface
  std::string log;           // the file of the coordinator's decisions
  std::string metrics;       // HOST:PORT of --metrics; "" without it
  std::string spot = "off";  // the agent's flag --spot
  std::filesystem::path headroom_program;
  // Called with the coordinator's address once the coordinator listens.
  std::function<void(const std::string&)> on_address;
  // Called with each status that arrives.
  std::function<void(const coordinator::RunStatus&)> on_status;
  // Called with the events that have arrived since the last call.
  std::function<void(const std::vector<wire::EventRecord>&)> on_events;
  std::function<int()> interrupts;
};

struct SupervisedRun {
  RunExit end;
  // The last status that arrived; a default RunStatus if none arrived.
  coordinator::RunStatus status;
};

// Throws Error only if a child cannot be started. A child that fails later ends
// the run: the line of its output that best explains the failure becomes the
// reason.
SupervisedRun supervise(const SupervisorOptions& options, Terminal& terminal);

}  // namespace headroom::cli
