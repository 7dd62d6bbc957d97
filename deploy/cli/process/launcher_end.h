// How a process tells its launcher how it ended, besides its exit code: a file
// with the reason, and one verdict for all processes of a machine.
//
// torchrun starts a process for each device. Local rank 0 becomes the agent for
// all of them; the others wait for its end, without looking for it again and
// again, and end with its exit code. They meet at a socket without a file,
// which the kernel closes with the agent however that ends.
//
// Threads: use them from main.
#pragma once

#include <chrono>
#include <string>

#include "deploy/cli/process/launcher_environment.h"

namespace headroom::cli {

// What torchelastic reads from TORCHELASTIC_ERROR_FILE. Pure.
std::string torchelastic_error(const std::string& reason,
                               std::chrono::system_clock::time_point at);

// Writes the reason of a failure where the job's launcher looks for it, if it
// does. Never throws: the exit code says enough.
void leave_failure(const LauncherJob& job, const std::string& reason) noexcept;

// Held by the agent from its start.
class LocalVerdict {
 public:
  // Throws Error (exit 5) if another agent of the same start is there.
  explicit LocalVerdict(const LauncherJob& job);
  ~LocalVerdict();
  LocalVerdict(const LocalVerdict&) = delete;
  LocalVerdict& operator=(const LocalVerdict&) = delete;

  // Gives the exit code to the others, and waits at most for `patience` for
  // those that have not come yet.
  void tell(int exit_code, std::chrono::milliseconds patience);

 private:
  int socket_ = -1;
  int others_ = 0;
};

// Waits for the agent's end and returns its exit code. One interrupt is the
// agent's to answer; two end the wait with 130. Throws Error (exit 5) if there
// is no agent within `patience`, or it was killed.
int wait_for_verdict(const LauncherJob& job,
                     std::chrono::milliseconds patience);

}  // namespace headroom::cli
