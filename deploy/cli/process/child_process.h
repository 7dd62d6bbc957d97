// ChildProcess: starts a process, watches it, and ends it when this process
// ends.
//
// The child runs in its own process group, so that Ctrl-C reaches only the
// supervisor. When its parent dies, the kernel sends it `death_signal`. Its
// standard output and error are delivered line by line; the last lines are kept
// as its last words.
//
// Threads: start it from a thread that lives as long as the child, because the
// kernel watches the parent's thread, not its process. Use it from that thread
// only. `on_line` is called from another thread.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/process/child_output.h"
#include "parallel/base/environment.h"
#include "proto/refusal_channel.h"

namespace headroom::cli {

// Returns `name` if it is the path of an existing file, else the path of the
// program in a folder of PATH; "" if it is not found.
std::string find_program(const std::string& name);

struct ChildOptions {
  std::string name;                  // "worker 1" in messages
  std::vector<std::string> command;  // command[0] is a path
  // The child's environment. Use users_environment() for a program of the user.
  // nullopt means the environment of this process; our own programs get it,
  // because they write log records.
  std::optional<Environment> environment;
  Environment extra_environment;  // added to the child's environment
  int input = -1;  // the child's standard input; -1 means /dev/null
  std::vector<int> passed_fds;  // open in the child under the same number
  std::vector<int> cores;  // cores for the child; if empty, the parent's cores
  int death_signal = SIGKILL;  // sent to the child when this process ends
  bool may_refuse = false;     // the child gets a refusal channel
  std::function<void(const ChildLine&)> on_line;
};

class ChildProcess {
 public:
  static constexpr size_t kLastWordsLines = 20;

  // Throws Error (exit 2) if the program cannot be started.
  explicit ChildProcess(ChildOptions options);
  // Kills the child and its group if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const;
  int pid() const;

  // nullopt while the child runs; then its exit code, or 128 + the signal that
  // killed it. Once it is set, last_words() is complete.
  std::optional<int> exit_code();
  // Whether a signal ended the child.
  bool was_killed() { return exit_code().value_or(0) > 128; }
  std::optional<int> wait(std::chrono::milliseconds timeout);

  // Signals the child's whole group; does nothing if it has ended.
  void send(int signal);
  // Sends SIGTERM, and SIGKILL after `grace`. Returns the exit code.
  int terminate(std::chrono::milliseconds grace);

  // The refusal that ended the child, if it sent one. REQUIRES: exit_code() is
  // set.
  const std::optional<wire::Refusal>& refusal() const;

  // The last lines that the child wrote, with line ends; "" if it wrote
  // nothing.
  std::string last_words() const;
  // The line of last_words() that best explains why the child ended.
  std::string telling_line() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The processes that a child has started. They may outlive the child in order
// to save their state.
//
// The list is complete for processes that the child started before the
// constructor was called. Each process is held by a pidfd, so a reused process
// number is never mistaken for it.
class Offspring {
 public:
  explicit Offspring(const ChildProcess& child);
  ~Offspring();
  Offspring(const Offspring&) = delete;
  Offspring& operator=(const Offspring&) = delete;

  // Returns whether all these processes have ended.
  bool wait(std::chrono::milliseconds timeout) const;
  void kill() const;

 private:
  std::vector<int> pidfds_;
};

}  // namespace headroom::cli
