// LauncherPlace: where mpirun, srun or another launcher put this process.
//
// The same command runs alone, under mpirun, or under srun; only environment
// variables tell. None of them names the host of rank 0, so the coordinator's
// address goes another way (rendezvous.h), under the job's name found here.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

namespace headroom::cli {

using Environment = std::map<std::string, std::string>;

struct LauncherPlace {
  std::string launcher;  // "mpirun", "srun" or "mpiexec", for messages
  int rank = 0;          // this process's rank in the job
  int size = 1;
  int local_rank = 0;  // its rank on this host
  int local_size = 1;
  // Unique among the jobs of all users of a shared folder, also over time;
  // made of letters, digits, '.', '_' and '-'. "": the launcher gives none.
  std::string job_id;

  bool one_host() const { return local_size == size; }
};

// Nothing outside a launcher. Inside several (mpirun in a Slurm job) the
// innermost counts: Open MPI, then PMI, then Slurm. The script of a Slurm batch
// job is no task of srun: outside. Throws Error when a variable is no number or
// rank and size contradict each other.
std::optional<LauncherPlace> launcher_place(const Environment& environment);

// The exit code of an agent whose workers have left a run that goes on. A task
// of mpirun or srun has done its part: 0, for another code would end the job.
// A pod of an Indexed Job is interrupted: 130, which the Job's podFailurePolicy
// does not count, so that another pod takes its place; 0 would complete it.
int exit_code_of_leaver(const Environment& environment);

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
