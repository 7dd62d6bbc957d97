// OomKills: whether a process that was killed by SIGKILL was killed by the
// kernel because the host's memory ran out. The kernel leaves no trace in the
// process's end; it only counts its kills (parallel/machine/machine_limits.h).
//
// A doubt: without control groups the count is the machine's, so a kill of
// another user's process at the same moment would be taken for ours.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/machine/machine_limits.h"

namespace headroom::cli {

class OomKills {
 public:
  OomKills() : explained_(read_machine_limits().oom_kills) {}

  // Call it for a process that was killed. If the kernel has reported more
  // kills than earlier calls have explained, counts one more as explained, and
  // returns the limit at which memory ran out: "500 MiB by the container's
  // limit (cgroup)". Otherwise returns "".
  std::string explain_one() {
    const MachineLimits now = read_machine_limits();
    if (now.oom_kills <= explained_) return "";
    ++explained_;
    return now.memory_limit_text();
  }

 private:
  int64_t explained_;
};

}  // namespace headroom::cli
