// A run by one worker process, with no coordinator, agent or network.
//
//   run.yaml    the definition of the run: all its keys (configs/run_config.h)
//   plan.json   the plan for one process; without it the worker makes a plan.
//               headroom plan --write DIR writes both files, and a run
//               directory has both
//
// Training is the same as in a run with a coordinator: the same TrainingRun,
// files and bits. This file replaces the coordinator: it writes events.jsonl,
// logs the progress and handles Ctrl-C. A lost process is not restarted, and no
// other plan is tried if memory runs out.
//
// Errors: Error (exit 2) if the request cannot be carried out.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "configs/worker_start.h"
#include "worker/control/coordinator_client.h"

namespace headroom::run {

struct StandaloneRun {
  control::Assignment assignment;  // the only assignment of the run
  int threads = 1;                 // compute threads
};

// Reads and checks the request's files; creates no files.
StandaloneRun read_standalone(const configs::StandaloneRequest& request);

// How the run ended.
struct StandaloneEnd {
  int exit_code = 0;
  std::string reason;
  std::string result_json;  // content of summary.json; for val, of results.json
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
