#include "parallel/base/run_files.h"

namespace headroom::run_files {

std::vector<Description> descriptions() {
  const std::string weights = std::string(kWeights) + "/";
  return {
      {{kPlan}, "the plan, and its predicted bytes"},
      {{kRun, kModel}, "the whole configuration; the model's layers"},
      {{kSteps}, "one object for each committed step"},
      {{kEvents},
       "one object for each event: event, step, rank, reason, time, and more"},
      {{kResults, "events.out.tfevents.*"},
       "YOLOv5's columns, a line an epoch; the same for TensorBoard"},
      {{weights + "best.safetensors", weights + "last.safetensors"},
       "averaged weights"},
      {{std::string(kCheckpoints) + "/step-N/"}, "the state after N steps"},
      {{kSummary}, "the metrics of best, and the run's figures"},
      {{kJudgement}, "of val: the metrics"},
      {{kDataReport}, "what was wrong with the data"},
      {{"*.png", "*.jpg"},
       "labels, batches, curves, confusion; not with --noplots"},
      {{std::string(kLogs) + "/"}, "what the processes printed"},
  };
}

}  // namespace headroom::run_files
