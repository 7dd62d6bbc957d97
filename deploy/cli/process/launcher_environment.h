// Reads the environment that a launcher gives to the processes that it starts:
// the place of this process in the job, the address of rank 0's machine, and
// where to write the reason of a failure.
//
// The same command runs alone, under mpirun, srun, torchrun and others; only
// environment variables differ. launcher_table.h has a row for each launcher. A
// launcher that does not name rank 0's machine needs a shared folder
// (rendezvous.h), in which a file is named after LauncherPlace::job_id.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/process/launcher_table.h"

namespace headroom::cli {

// The position of an agent among the agents of its job.
struct LauncherPlace {
  std::string launcher;  // the launcher's name, for messages
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // its rank among the agents of this host
  int local_size = 1;
  // Differs from the job_id of every other job that uses a shared folder, also
  // of other users and at other times. Only letters, digits, '.', '_' and '-'.
  // "" if the launcher names no job.
  std::string job_id;
  // The number of this agent's workers, from the launcher's number of devices;
  // 0 if the launcher does not count them.
  int workers = 0;
  // Whether the devices are cards; a run on the CPU ignores their number.
  bool counts_cards = false;
  bool promises_cards = false;  // a machine without cards is an error

  bool one_host() const { return local_size == size; }
};

struct LauncherJob {
  const Launcher* launcher = nullptr;  // the launcher's row in the table
  LauncherPlace place;
  // False if the number of agents is unknown (the pods of an Indexed Job). Only
  // the rank in `place` is valid then.
  bool has_size = true;
  // The index of this process among those that share an agent
  // (Started::kWorkers): 0 becomes the agent, the others wait for its end.
  int local_worker = 0;
  int local_workers = 1;
  // Equal in all processes that share an agent. Other jobs on this machine, and
  // earlier starts of this job, have other keys.
  std::string local_key;
  // For a launcher that restarts its processes: `starter` is equal in all
  // starts by one launcher process; `run_key` is equal in all starts of the
  // job, but other jobs may have it too. "" if unknown.
  int restarts = 0;
  std::string starter;
  std::string run_key;
  // HOST:PORT of rank 0's coordinator, and the variable that it was read from.
  // ":PORT" on rank 0 if the launcher gives the address only to the other
  // ranks. "" if the launcher names no machine.
  std::string coordinator;
  std::string coordinator_from;
  // Other launchers whose variables are also set, because they started this
  // launcher.
  std::vector<std::string> around;
  // The file for the reason of a failure; "" if there is none.
  std::string error_file;

  // The exit code of an agent whose workers have left a run that continues.
  int exit_code_of_leaver() const;
  // For example "torchrun inside srun: torchrun's variables count"; "" if no
  // other launcher started this launcher.
  std::string around_text() const;
};

// Properties of the machine that are read in addition to the environment
// variables.
struct LauncherMachine {
  std::string name;  // the host name
  // Reads a file; nullopt if it cannot be read.
  std::function<std::optional<std::string>(const std::string&)> read;
};
LauncherMachine this_machine();

// Returns nullopt outside a launcher. Throws Error (exit 2, one line) that
// names the variable, its value and the remedy if a variable is missing, is not
// a number, or contradicts another. Pure except for the reads of `machine`.
std::optional<LauncherJob> read_launcher(
    const Environment& environment,
    const LauncherMachine& machine = this_machine());

// Every process of a job finds the same mistake, but only rank 0 reports it.
// Rank 0's end makes the launcher interrupt the other processes. Waits at most
// `patience` for that interrupt and returns whether it came. Returns false at
// once for rank 0.
bool wait_for_rank_zero(const LauncherPlace& place,
                        std::chrono::milliseconds patience);

}  // namespace headroom::cli
