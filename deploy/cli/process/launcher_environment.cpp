#include "deploy/cli/process/launcher_environment.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <limits>
#include <sstream>

#include "deploy/cli/process/interrupts.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::cli {
namespace {

std::string value_of(const Environment& environment, const std::string& name) {
  auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

int number_of(const Environment& environment, const std::string& name) {
  const std::string text = value_of(environment, name);
  const auto number = parse_whole(text, 0, std::numeric_limits<int>::max());
  if (!number) {
    throw Error("launcher", name + "='" + text + "' is no number of a process",
                "start through mpirun or srun, or unset that variable");
  }
  return static_cast<int>(*number);
}

// Job names become file names.
std::string file_name_of(std::string text) {
  for (char& c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' &&
        c != '-') {
      c = '_';
    }
  }
  return text;
}

std::string with_hyphen(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second
                                         : first + "-" + second;
}

LauncherPlace checked(LauncherPlace place) {
  if (place.size < 1 || place.rank >= place.size ||
      place.local_rank >= place.local_size || place.local_size > place.size) {
    throw Error(
        "launcher",
        place.launcher + " says rank " + std::to_string(place.rank) + " of " +
            std::to_string(place.size) + ", local rank " +
            std::to_string(place.local_rank) + " of " +
            std::to_string(place.local_size),
        "these contradict each other: unset the variables of one launcher");
  }
  place.job_id = file_name_of(place.job_id);
  return place;
}

LauncherPlace open_mpi_place(const Environment& environment) {
  LauncherPlace place;
  place.launcher = "mpirun";
  place.rank = number_of(environment, "OMPI_COMM_WORLD_RANK");
  place.size = number_of(environment, "OMPI_COMM_WORLD_SIZE");
  place.local_rank = number_of(environment, "OMPI_COMM_WORLD_LOCAL_RANK");
  place.local_size = number_of(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  // The name space is a 16-bit hash and comes again; the transport key is
  // random, and the same in all processes of a job.
  place.job_id = with_hyphen(
      value_of(environment, "PMIX_NAMESPACE"),
      value_of(environment, "OMPI_MCA_orte_precondition_transports"));
  return place;
}

LauncherPlace pmi_place(const Environment& environment) {
  LauncherPlace place;
  place.launcher = "mpiexec";
  place.rank = number_of(environment, "PMI_RANK");
  place.size = number_of(environment, "PMI_SIZE");
  if (environment.contains("MPI_LOCALNRANKS")) {
    place.local_rank = number_of(environment, "MPI_LOCALRANKID");
    place.local_size = number_of(environment, "MPI_LOCALNRANKS");
  }
  place.job_id = value_of(environment, "PMI_JOBID");
  return place;
}

// Tasks of node `node` in Slurm's list "2(x3),1": three nodes with 2, one with
// 1. Nothing if the list ends before it or is none.
std::optional<int> tasks_of_node(const std::string& list, int node) {
  std::istringstream entries(list);
  std::string entry;
  while (std::getline(entries, entry, ',')) {
    int tasks = 0, nodes = 1;
    if (std::sscanf(entry.c_str(), "%d(x%d)", &tasks, &nodes) < 1) break;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

LauncherPlace slurm_place(const Environment& environment) {
  LauncherPlace place;
  place.launcher = "srun";
  place.rank = number_of(environment, "SLURM_PROCID");
  place.size = number_of(environment, "SLURM_NTASKS");
  place.local_rank = number_of(environment, "SLURM_LOCALID");
  const std::string per_node =
      value_of(environment, "SLURM_STEP_TASKS_PER_NODE");
  std::optional<int> tasks =
      tasks_of_node(per_node, number_of(environment, "SLURM_NODEID"));
  if (!tasks) {
    throw Error("launcher",
                "SLURM_STEP_TASKS_PER_NODE='" + per_node +
                    "' does not list this node's tasks",
                "start through srun");
  }
  place.local_size = *tasks;
  place.job_id = with_hyphen(value_of(environment, "SLURM_JOB_ID"),
                             value_of(environment, "SLURM_STEP_ID"));
  return place;
}

// Slurm also sets SLURM_PROCID and SLURM_NTASKS in the batch script and in an
// interactive shell, whose steps have special numbers or none.
bool is_task_of_srun(const Environment& environment) {
  constexpr int64_t kFirstSpecialStep = 0xfffffff0;
  const std::string step = value_of(environment, "SLURM_STEP_ID");
  return environment.contains("SLURM_PROCID") &&
         parse_whole(step, 0, kFirstSpecialStep - 1).has_value();
}

}  // namespace

std::optional<LauncherPlace> launcher_place(const Environment& environment) {
  if (environment.contains("OMPI_COMM_WORLD_RANK")) {
    return checked(open_mpi_place(environment));
  }
  if (environment.contains("PMI_RANK")) return checked(pmi_place(environment));
  if (is_task_of_srun(environment)) return checked(slurm_place(environment));
  return std::nullopt;
}

int exit_code_of_leaver(const Environment& environment) {
  const bool is_launched = environment.contains("OMPI_COMM_WORLD_RANK") ||
                           is_task_of_srun(environment);
  return !is_launched && environment.contains("JOB_COMPLETION_INDEX")
             ? static_cast<int>(ExitCode::kInterrupted)
             : 0;
}

bool wait_for_rank_zero(const LauncherPlace& place,
                        std::chrono::milliseconds patience) {
  if (place.rank == 0) return false;
  const interrupts::Watch watch;
  return interrupts::wait(patience);
}

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      environment[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  return environment;
}

void require_descriptors() {
  constexpr rlim_t kLeast = 32;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kLeast) return;
  throw Error("launch",
              "this process may open " + std::to_string(limit.rlim_cur) +
                  " files at once, and a run takes at least " +
                  std::to_string(kLeast) + " descriptors",
              "allow it more, for example ulimit -n 1024", ExitCode::kResource);
}

}  // namespace headroom::cli
