// OomKills: whether a process that was killed by SIGKILL was killed by the
// kernel because the host's memory ran out. The kernel leaves no trace in the
// process's end; it only counts its kills (parallel/machine/machine_limits.h).
// So the count is read all the time, and a kill explains only a process that
// ended within three seconds.
//
// A doubt: without control groups the count is the machine's, so a kill of
// another user's process at the same moment would be taken for ours.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "parallel/machine/machine_limits.h"

namespace headroom::cli {

class OomKills {
 public:
  using Clock = std::chrono::steady_clock;

  OomKills() : count_(read_machine_limits().oom_kills) {}

  // Call it often: at most once a second it reads the kernel's count.
  void watch(Clock::time_point now) {
    if (now - last_look_ >= std::chrono::seconds(1)) look(now);
  }

  // Call it for a process that was killed. If the kernel has reported a kill of
  // the last three seconds that explains no other process, returns the limit at
  // which memory ran out: "500 MiB by the container's limit (cgroup)".
  // Otherwise returns "".
  std::string explain_one(Clock::time_point now) {
    const std::string limit = look(now);
    while (!unexplained_.empty() &&
           now - unexplained_.front() > std::chrono::seconds(3)) {
      unexplained_.pop_front();
    }
    if (unexplained_.empty()) return "";
    unexplained_.pop_front();
    return limit;
  }

 private:
  // Returns the limit at which memory ran out last.
  std::string look(Clock::time_point now) {
    const MachineLimits limits = read_machine_limits();
    for (; count_ < limits.oom_kills; ++count_) unexplained_.push_back(now);
    last_look_ = now;
    return limits.oom_limit_text();
  }

  int64_t count_;
  Clock::time_point last_look_{};
  std::deque<Clock::time_point> unexplained_;  // when the kills were read
};

}  // namespace headroom::cli
