// What a launcher says to the processes that it starts: where this one is in
// the job, where rank 0's machine is, and how it wants to be told of the end.
//
// The same command runs alone, under mpirun, srun, torchrun and others; only
// environment variables tell. launcher_table.h has a row for each launcher. One
// that names no machine of rank 0 needs a folder to meet in (rendezvous.h),
// under the job's name found here.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/process/launcher_table.h"

namespace headroom::cli {

// The place of an agent among the agents of its job.
struct LauncherPlace {
  std::string launcher;  // its name, for messages
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // its rank among the agents on this host
  int local_size = 1;
  // Unique among the jobs of all users of a shared folder, also over time;
  // made of letters, digits, '.', '_' and '-'. "": the launcher gives none.
  std::string job_id;
  // Workers of this agent, as the launcher counts devices; 0: it does not.
  int workers = 0;
  // They are counted in cards, which a run on the CPU does not use.
  bool counts_cards = false;
  bool promises_cards = false;  // there are that many (launcher_table.h)

  bool one_host() const { return local_size == size; }
};

struct LauncherJob {
  const Launcher* launcher = nullptr;  // its row
  LauncherPlace place;
  // False: nothing says how many agents there are (an Indexed Job's pods), and
  // `place` has a rank alone.
  bool has_size = true;
  // This process among those that share the agent (Started::kWorkers): 0 is
  // the agent itself, the others wait for its end.
  int local_worker = 0;
  int local_workers = 1;
  // The same text in all of them, and in no other start of any job here.
  std::string local_key;
  // Of a launcher that starts its processes again: `starter` is the same in all
  // starts by one process of it, `run_key` in all starts of the job, but maybe
  // in others too. "" where nothing tells.
  int restarts = 0;
  std::string starter;
  std::string run_key;
  // HOST:PORT where rank 0's coordinator listens, and the variable that says
  // so; ":PORT" on rank 0 where the launcher tells only the others; "" where it
  // names no machine.
  std::string coordinator;
  std::string coordinator_from;
  // Other launchers whose variables are set too: this one was started inside.
  std::vector<std::string> around;
  // The file for the reason of a failure; "" for none.
  std::string error_file;

  // How an agent ends whose workers have left a run that goes on.
  int exit_code_of_leaver() const;
  // "torchrun inside srun: torchrun's variables count"; "" inside no other.
  std::string around_text() const;
};

// What is looked up on a machine, besides variables.
struct LauncherMachine {
  std::string name;  // its host name
  // The text of a file; nothing if it cannot be read.
  std::function<std::optional<std::string>(const std::string&)> read;
};
LauncherMachine this_machine();

// Nothing outside a launcher. Throws Error (exit 2, one line) that names the
// variable, its value and the remedy where one is missing, is no number, or
// contradicts another. Pure, but for what `machine` reads.
std::optional<LauncherJob> read_launcher(
    const Environment& environment,
    const LauncherMachine& machine = this_machine());

// Every process of a launcher's job sees the same mistake. Rank 0 says it, and
// its end makes the launcher interrupt the others. Waits for that, at most for
// `patience`, and returns whether it happened; for rank 0 itself false at once.
bool wait_for_rank_zero(const LauncherPlace& place,
                        std::chrono::milliseconds patience);

// This process's environment.
Environment process_environment();

// Throws Error (exit 5) where this process may open so few files that a run
// would fail later, each with another message.
void require_descriptors();

}  // namespace headroom::cli
