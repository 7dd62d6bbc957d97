// A run by one worker process, with no coordinator, agent or network.
//
//   run.yaml    what is asked for: every key of a run (configs/run_config.h)
//   plan.json   how, for one process; without it the worker plans for itself.
//               headroom plan --write DIR writes both, and a run directory
//               holds both
//
// It trains as a coordinator's run does: the same TrainingRun, the same files,
// the same bits. This file replaces the coordinator: events.jsonl, progress as
// log lines, Ctrl-C. A lost process is not restarted, and no other plan is
// tried if memory runs out.
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
  int threads = 1;                 // compute threads
};

// Reads and checks the request's files; creates none.
StandaloneRun read_standalone(const configs::StandaloneRequest& request);

// How the run ended.
struct StandaloneEnd {
  int exit_code = 0;
  std::string reason;
  std::string result_json;  // from summary.json; for val, results.json
};

// Replaces the coordinator: hands out `assignment` once; `stop_requested`
// returns whether the run should stop.
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
