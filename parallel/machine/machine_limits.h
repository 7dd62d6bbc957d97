// MachineLimits: what this process may use of its machine. A container is given
// less than the machine has by control groups (cgroup version 1 or 2), whose
// limits hold from the process's own group up to the root; /proc/meminfo, which
// most programs read, shows the whole machine all the same.
//
// Pure: everything is read from files below a folder, so that tests give a
// folder of their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace headroom {

// Names a folder that is read instead of "/"; for tests.
inline constexpr const char* kMachineRootVariable = "HEADROOM_MACHINE_ROOT";

struct MachineLimits {
  // The number of bytes that all processes under a limit may have together, and
  // how many of them are free. Several limits may hold, besides the machine's
  // own memory; the values are those of the limit with the fewest free bytes.
  // Cached files count as free. 0 if unknown.
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;
  bool memory_is_of_container = false;

  // The number of threads that can run at once: the cores of the affinity mask
  // (cpusets included), or the quota of processor time, rounded up, if that is
  // smaller. At least 1.
  int64_t cores = 1;
  int64_t cores_of_mask = 1;
  bool cores_are_of_container = false;  // the quota is the smaller one

  // Most processes and threads that the control groups allow (pids.max); no
  // value without such a limit.
  std::optional<int64_t> most_threads;

  // Processes of the container that the kernel has killed because memory ran
  // out; of the whole machine if no control group counts them.
  int64_t oom_kills = 0;
  // The limit at which memory ran out: the smallest limit of the groups that
  // have counted kills. Without such a group, the machine's memory.
  int64_t oom_limit_bytes = 0;
  bool oom_limit_is_of_container = false;

  // "500 MiB by the container's limit (cgroup), 430 MiB free"
  std::string memory_text() const;
  // "500 MiB by the container's limit (cgroup)"
  std::string memory_limit_text() const;
  // The limit at which memory ran out, in the form of memory_limit_text().
  std::string oom_limit_text() const;
};

// Never fails: a file that cannot be read sets no limit.
MachineLimits read_machine_limits(const std::filesystem::path& root);

// Reads this machine, or the folder that kMachineRootVariable names.
MachineLimits read_machine_limits();

}  // namespace headroom
