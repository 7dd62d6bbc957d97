// EventPrograms: starts the programs that follow a run (--on-event, --mlflow,
// --webhook, a TrainJob's status), once per run, and writes to their standard
// input, one JSON object a line:
//
//   {"event":"run_start","run":"exp3","folder":"/data/runs/train/exp3",
//    "resumed":false,"events_from":0,"config":{"epochs":"100",...}}
//   the lines that the run adds to events.jsonl, from byte `events_from` on
//   {"event":"progress","step":29,"num_steps":180,"epoch":9,"num_epochs":60,
//    "metrics":{"box_loss":0.118,...}}                      every 5 s, if new
//   {"event":"run_end","exit_code":0,"reason":"...","dropped":0,"seconds":10}
//
// `config` has the keys of run.yaml. It is null in a run that ended before its
// folder held its own files. After run_end the input is closed, and a program
// that has not ended after `seconds` is killed. `dropped` is the number of
// events that were left out because this program read too slowly.
//
// No program delays a step or ends the run: the newest 256 KiB of lines wait
// for a program that does not read, and a program that ends gets no more lines.
// The output of --on-event's programs goes to logs/on-event.jsonl in the run's
// folder; a program that writes without end is slowed down.
//
// Threads: all functions are called from the main thread. Only finish() blocks.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/run/run_status.h"
#include "deploy/cli/process/child_process.h"
#include "proto/event_file.h"

namespace headroom::cli {

struct EventProgram {
  std::string name;  // for messages: "--on-event notify.py"
  std::vector<std::string> command;
  Environment environment;  // users_environment() for a program of the user
  std::vector<int> passed_fds = {};
  // The program's output lines are messages to the user, printed unchanged.
  bool speaks_to_user = false;
};

class EventPrograms {
 public:
  // Throws Error (exit 2) if a program cannot be started. REQUIRES: the run has
  // not begun to write to `directory`.
  EventPrograms(const std::vector<EventProgram>& programs,
                const std::filesystem::path& directory, bool is_resumed,
                std::function<void(const std::string&)> say);
  ~EventPrograms();  // kills the programs

  // Pass new events, or the newest status, to the programs, as far as their
  // pipes have space.
  void take(const std::vector<wire::EventRecord>& events);
  void take(const coordinator::RunStatus& status);

  // Returns when all programs have ended. Programs that still run after
  // kTimeAtEnd, or at a further interrupt (Ctrl-C), are ended.
  void finish(int exit_code, const std::string& reason);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace headroom::cli
