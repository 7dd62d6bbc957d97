// ChildProcess: a process that this one starts, watches and never leaves
// behind.
//
// It runs in a process group of its own, so that Ctrl-C reaches the supervisor
// alone; the kernel kills it, or sends the signal of its choice, when its
// parent dies; its standard output and error come back line by line, and the
// last lines are kept as its last words.
//
// Threads: start it from a thread that lives as long as the child may (the
// kernel watches the parent's thread, not its process); use it from that one.
// `on_line` is called from a thread of its own.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/process/child_output.h"
#include "deploy/cli/process/launcher_environment.h"
#include "deploy/cli/process/refusal_channel.h"

namespace headroom::cli {

struct ChildOptions {
  std::string name;                  // "worker 1" in messages
  std::vector<std::string> command;  // command[0] is a path
  Environment extra_environment;     // added to this process's own
  std::vector<int> passed_fds;       // open in the child under the same number
  std::vector<int> cores;            // cores it may run on; none: its parent's
  int death_signal = SIGKILL;        // sent to it when this process ends
  bool may_refuse = false;           // it is `headroom` (refusal_channel.h)
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

  // Nothing while it runs; then its exit code, or 128 + the signal that killed
  // it. Once this is there, last_words() is complete.
  std::optional<int> exit_code();
  std::optional<int> wait(std::chrono::milliseconds timeout);

  // Signals the child's whole group; does nothing when it has ended.
  void send(int signal);
  // SIGTERM, then SIGKILL after `grace`; returns the exit code.
  int terminate(std::chrono::milliseconds grace);

  // Why it ended, where it may_refuse and said so. REQUIRES: exit_code().
  const std::optional<Refusal>& refusal() const;

  // The last lines it wrote, with line ends; "" if it wrote none.
  std::string last_words() const;
  // The one of them that says best why it ended.
  std::string telling_line() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The processes that a child has started, which may outlive it to save what
// they hold. None is missed that the child started before, and none is taken
// for another that has its number later.
class Offspring {
 public:
  explicit Offspring(const ChildProcess& child);
  ~Offspring();
  Offspring(const Offspring&) = delete;
  Offspring& operator=(const Offspring&) = delete;

  // Whether all of them have ended.
  bool wait(std::chrono::milliseconds timeout) const;
  void kill() const;

 private:
  std::vector<int> pidfds_;
};

}  // namespace headroom::cli
