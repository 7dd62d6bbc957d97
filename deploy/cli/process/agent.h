// Agent: one per node. Registers the node with the coordinator, starts its
// workers and speaks for them, reports their exits at once with their last
// words, starts successors where the coordinator says so, kills those that it
// gives up, and ends with the run, or earlier where it is asked to stop: its
// workers leave at a committed step, and the run goes on with the others.
//
// Threads: run_agent is called from main: the kernel ties the workers' lives to
// the thread that started them.
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
  bool decided_here = false;  // not by the coordinator, so nobody else says it
  bool says_how_to_go_on = false;  // `reason` has the command that resumes it
};

// --certs, --token-file and --insecure-network as they were given, for
// processes that are started.
struct SecurityFiles {
  std::string certs;
  std::string token_file;
  bool insecure_network = false;

  // "--certs DIR --token-file FILE", as far as they were given.
  std::vector<std::string> flags() const;
};

struct AgentOptions {
  std::string coordinator;  // HOST:PORT
  // The network interface that tensors go over; "": the one towards the
  // coordinator.
  std::string interface;
  SecurityFiles security;
  int processes = 1;  // workers to start
  int launcher_rank = 0;
  int launcher_size = 0;     // agents that a launcher started; 0: none did
  int first_local_rank = 0;  // its workers' first rank on this host
  // Workers of all agents here; 0: there is no other agent.
  int local_workers = 0;
  std::filesystem::path worker_program;
  // Patience with a coordinator that does not answer.
  std::chrono::milliseconds registration_timeout = std::chrono::seconds(30);
  std::chrono::seconds silence_timeout = std::chrono::seconds(30);
  // Time for workers to end by themselves once the run is over; where it ended
  // well, nobody hangs, and under MPI they leave together: who is killed on a
  // busy machine then makes mpirun call the run a failure.
  std::chrono::milliseconds grace = std::chrono::seconds(5);
  std::chrono::milliseconds grace_after_success = std::chrono::seconds(60);
  // Lines for people; called from several threads.
  std::function<void(const std::string&)> print;
  // How often this process was asked to stop: once drains this node, twice
  // ends its workers at once.
  std::function<int()> interrupts;
  // Why this machine is about to be taken away, which drains this node; ""
  // while it stays. Null: nobody knows.
  std::function<std::string()> notice;
  // The coordinator is on this machine too, so that a notice ends the run.
  bool has_coordinator = false;
  // How the agent ends once its workers have left a run that goes on.
  int exit_code_of_leaver = 0;
};

// headroom-worker beside this program. Throws Error (exit 2) that says where
// it was looked for.
std::filesystem::path find_worker_program();

// Returns when the run is over and all workers have ended. Throws Error if the
// coordinator refuses this node or never answers.
RunExit run_agent(const AgentOptions& options);

}  // namespace headroom::cli
