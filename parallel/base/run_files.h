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
inline constexpr const char* kReport = "report.html";
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
      {{kPlan}, "the plan and its predicted bytes"},
      {{kRun, kModel}, "every setting; the model's layers"},
      {{kSteps},
       "a line for each committed step: losses, gradient norm, rates, samples, "
       "predicted and measured bytes of each rank"},
      {{kEvents},
       "a line for each event: event, step, rank, reason, time, and more"},
      {{kResults, "events.out.tfevents.*"},
       "YOLOv5's columns, a line for each epoch; the same for TensorBoard"},
      {{weights + "best.safetensors", weights + "last.safetensors"},
       "averaged weights under YOLOv5's tensor names"},
      {{std::string(kCheckpoints) + "/step-N/"},
       "the state after N steps; two are kept"},
      {{kSummary},
       "the metrics of the best weights, predicted and measured memory of each "
       "phase, checkpoints written"},
      {{kReport}, "the run's page as one file; none with --noplots"},
      {{kJudgement}, "the metrics of headroom val"},
      {{kMlflow}, "the MLflow run that follows this one"},
      {{kDataReport}, "faults of the data set, by file and line"},
      {{"*.png", "*.jpg"},
       "YOLOv5's pictures: labels, batches, curves, confusion matrix; none "
       "with "
       "--noplots"},
      {{std::string(kLogs) + "/"},
       "what the processes printed; rotated, 32 MiB at most each"},
      {{"coordinator.log"}, "the coordinator's decisions, while the run lasts"},
  };
}

}  // namespace headroom::run_files
