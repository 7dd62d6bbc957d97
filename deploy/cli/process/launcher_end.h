// How a process reports its end to the launcher, besides its exit code: a file
// with the reason, and one exit code for all processes of a machine.
//
// torchrun starts one process per device. Local rank 0 becomes the agent for
// all of them; the others wait for its end without polling and end with its
// exit code. They connect to an abstract Unix socket, which has no file and
// which the kernel closes however the agent ends.
//
// Threads: use these functions from the main thread.
#pragma once

#include <chrono>
#include <string>

#include "deploy/cli/process/launcher_environment.h"

namespace headroom::cli {

// The JSON text that torchelastic reads from TORCHELASTIC_ERROR_FILE. Pure.
std::string torchelastic_error(const std::string& reason,
                               std::chrono::system_clock::time_point at);

// Writes the reason of a failure to the file that the job's launcher reads, if
// there is such a file. Never throws: the exit code is enough.
void leave_failure(const LauncherJob& job, const std::string& reason) noexcept;

// The agent's end of the socket, which exists as long as the agent runs.
class LocalVerdict {
 public:
  // Throws Error (exit 5) if the job already has an agent on this machine.
  explicit LocalVerdict(const LauncherJob& job);
  ~LocalVerdict();
  LocalVerdict(const LocalVerdict&) = delete;
  LocalVerdict& operator=(const LocalVerdict&) = delete;

  // Sends the exit code to the other processes. Waits at most `patience` for
  // processes that have not connected yet.
  void tell(int exit_code, std::chrono::milliseconds patience);

 private:
  int socket_ = -1;
  int others_ = 0;
};

// Waits for the agent's end and returns its exit code. The agent handles the
// first interrupt; the second ends this wait with 130. Throws Error (exit 5) if
// no agent appears within `patience`, or if it was killed.
int wait_for_verdict(const LauncherJob& job,
                     std::chrono::milliseconds patience);

}  // namespace headroom::cli
