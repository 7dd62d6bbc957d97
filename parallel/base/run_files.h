// What a run leaves in its directory: the name of each file where it is written
// and read, and what the guide's reference page says of it.
#pragma once

#include <string>
#include <vector>

namespace headroom::run_files {

inline constexpr const char* kPlan = "plan.json";
inline constexpr const char* kRun = "run.yaml";
inline constexpr const char* kModel = "model.yaml";
inline constexpr const char* kSteps = "steps.jsonl";
inline constexpr const char* kEvents = "events.jsonl";
inline constexpr const char* kResults = "results.csv";
inline constexpr const char* kSummary = "summary.json";
inline constexpr const char* kJudgement = "results.json";
inline constexpr const char* kMlflow = "mlflow.json";
inline constexpr const char* kDataReport = "data_report.txt";
// Folders.
inline constexpr const char* kWeights = "weights";
inline constexpr const char* kCheckpoints = "checkpoints";
inline constexpr const char* kLogs = "logs";

struct Description {
  std::vector<std::string> names;  // Files or folders; N and * stand for more.
  std::string content;
};

inline std::vector<Description> descriptions() {
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
      {{kMlflow}, "which MLflow run this is"},
      {{kDataReport}, "what was wrong with the data"},
      {{"*.png", "*.jpg"},
       "labels, batches, curves, confusion; not with --noplots"},
      {{std::string(kLogs) + "/"}, "what the processes printed"},
  };
}

}  // namespace headroom::run_files
