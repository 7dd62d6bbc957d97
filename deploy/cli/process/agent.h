// Agent: the process that manages one node's workers. It registers the node
// with the coordinator, starts the workers, sends their heartbeats and reports
// each exit at once, with the last lines that the worker wrote. It starts new
// workers when the coordinator orders them, and kills workers that the
// coordinator has declared lost.
//
// The agent ends with the run. If it is asked to stop earlier, its workers
// leave at a committed step; the run continues with the other nodes.
//
// Threads: call run_agent from the main thread. The kernel signals a worker
// when the thread that started it ends.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace headroom::cli {

// How a run ended for this process; `reason` is one line.
struct RunExit {
  int exit_code = 0;
  std::string reason;
  // True if this agent decided the end, not the coordinator; then the caller
  // prints `reason`.
  bool decided_here = false;
  bool says_how_to_go_on = false;  // `reason` has the resume command
  // A line for the user: where the run's folder is. "" if no step was
  // committed, or if this machine shares the folder of rank 0's machine.
  std::string place = {};
};

// The values of --certs, --token-file and --insecure-network, passed on to the
// processes that are started.
struct SecurityFiles {
  std::string certs;
  std::string token_file;
  bool insecure_network = false;

  // The flags that were given, for example "--certs DIR --token-file FILE".
  std::vector<std::string> flags() const;
};

struct AgentOptions {
  std::string coordinator;  // HOST:PORT
  // The network interface for tensors; "" means the interface that leads to the
  // coordinator.
  std::string interface;
  SecurityFiles security;
  std::string augment_program;  // its value for the workers
  int processes = 1;            // workers to start
  int launcher_rank = 0;
  int launcher_size = 0;     // agents that the launcher started, or 0
  int first_local_rank = 0;  // local rank of this agent's first worker
  // The number of workers of all agents on this host; 0 for a single agent.
  int local_workers = 0;
  std::filesystem::path worker_program;
  // How long to wait for a coordinator that does not answer.
  std::chrono::milliseconds registration_timeout = std::chrono::seconds(30);
  std::chrono::seconds silence_timeout = std::chrono::seconds(30);
  // How long workers may take to end by themselves after the run is over. After
  // a success the limit is long: no worker is stuck then, and under MPI the
  // processes leave together. A worker that is killed because the machine is
  // busy would make mpirun report the whole run as failed.
  std::chrono::milliseconds grace = std::chrono::seconds(5);
  std::chrono::milliseconds grace_after_success = std::chrono::seconds(60);
  // Prints a line for the user; called from several threads.
  std::function<void(const std::string&)> print;
  // The number of requests to stop this process. The first one drains this
  // node, the second ends its workers at once.
  std::function<int()> interrupts;
  // Returns why this machine will be taken away soon, or "" if it will not. A
  // reason drains this node. nullptr if there is no source of such notices.
  std::function<std::string()> notice;
  // Whether the coordinator also runs on this machine, so that a notice ends
  // the whole run.
  bool has_coordinator = false;
  // The agent's exit code when its workers have left a run that continues.
  int exit_code_of_leaver = 0;
};

// Returns the path of headroom-worker, which is expected beside this program.
// Throws Error (exit 2) that names the folder that was searched.
std::filesystem::path find_worker_program();

// Returns when the run is over and all workers have ended. Throws Error if the
// coordinator refuses this node or never answers.
RunExit run_agent(const AgentOptions& options);

}  // namespace headroom::cli
