// A run by one worker process, with no coordinator, agent or network.
//
//   run.yaml    what is asked for: every key of a run (configs/run_config.h)
//   plan.json   how, for one process; without it the worker plans for itself.
//               headroom plan --write DIR writes both, and a run directory
//               holds both
//
// The run is the one that a coordinator would start: the same TrainingRun, the
// same files, the same bits. This file does the coordinator's other work:
// events.jsonl, progress as lines on the log, Ctrl-C. A lost process is not
// started again, and no other plan follows one that runs out of memory.
//
// Errors: Error (exit 2) for a request that cannot be met.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "configs/worker_start.h"
#include "worker/control/coordinator_client.h"

namespace headroom::run {

struct StandaloneRun {
  control::Assignment assignment;  // the only one
  int threads = 1;                 // threads that compute
};

// Reads and checks the request's files; makes none.
StandaloneRun read_standalone(const configs::StandaloneRequest& request);

// How the run ended.
struct StandaloneEnd {
  int exit_code = 0;
  std::string reason;
  std::string result_json;  // summary.json's content; of val, results.json's
};

// Replaces the coordinator: hands out `assignment` once; `stop_requested` says
// whether the run should stop.
// Threads: any thread may call any method.
class StandaloneControl : public control::CoordinatorClient {
 public:
  static std::unique_ptr<StandaloneControl> make(
      const control::Assignment& assignment,
      std::function<bool()> stop_requested);

  // REQUIRES: run_generations() has returned.
  virtual StandaloneEnd end() const = 0;
};

}  // namespace headroom::run
