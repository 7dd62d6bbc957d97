// What a run leaves in its directory: the name of each file where it is written
// and read, and what the guide's reference page says of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/base/text.h"

namespace headroom::run_files {

// The plan that the run follows, with its predicted bytes.
inline constexpr const char* kPlan = "plan.json";
// The run's whole configuration.
inline constexpr const char* kRun = "run.yaml";
// The model's layers (configs/layers/model_record.h).
inline constexpr const char* kModel = "model.yaml";
// The committed steps, one JSON object a line.
inline constexpr const char* kSteps = "steps.jsonl";
// The run's events, one JSON object a line.
inline constexpr const char* kEvents = "events.jsonl";
// YOLOv5's columns, a line for each epoch.
inline constexpr const char* kResults = "results.csv";
// The same for TensorBoard, whose readers know the file by this beginning.
inline constexpr const char* kTensorboardPrefix = "events.out.tfevents.";
// The figures of the run and of its best epoch; how it ended.
inline constexpr const char* kSummary = "summary.json";
// The run's page as one file.
inline constexpr const char* kReport = "report.html";
// What headroom val found.
inline constexpr const char* kJudgement = "results.json";
// The MLflow run that follows this one.
inline constexpr const char* kMlflow = "mlflow.json";
// What was wrong with the data.
inline constexpr const char* kDataReport = "data_report.txt";

// The folder of averaged weights.
inline constexpr const char* kWeights = "weights";
// The folder of checkpoints, one folder for each.
inline constexpr const char* kCheckpoints = "checkpoints";
// The folder of what the processes printed.
inline constexpr const char* kLogs = "logs";

// Weights of any run end in it.
inline constexpr const char* kWeightsSuffix = ".safetensors";
// The averaged weights after the last epoch, in kWeights.
inline constexpr const char* kLastWeights = "last.safetensors";
// The averaged weights of the best validation, in kWeights.
inline constexpr const char* kBestWeights = "best.safetensors";
// The weights that --save-period keeps begin with it: epoch12.safetensors.
inline constexpr const char* kEpochPrefix = "epoch";

// It lists what a checkpoint's folder holds, and is written last: a folder
// without it is unfinished.
inline constexpr const char* kManifest = "MANIFEST.json";
// The tensors of a checkpoint.
inline constexpr const char* kState = "state.safetensors";

// The training images' labels as a picture.
inline constexpr const char* kLabelsPicture = "labels.jpg";
// Names of pictures of training's first batches, and of validation's, begin so.
inline constexpr const char* kTrainBatchPrefix = "train_batch";
inline constexpr const char* kValidationBatchPrefix = "val_batch";
// The first batches of training with their boxes.
inline std::string train_batch_picture(int64_t batch) {
  return cat(kTrainBatchPrefix, batch, ".jpg");
}
// The columns of kResults as curves.
inline constexpr const char* kResultsPicture = "results.png";
// Precision over recall at the last validation.
inline constexpr const char* kCurvePicture = "PR_curve.png";

// The coordinator's log (coordinator/log/write_ahead_log.h), while a run goes
// on or can go on.
inline constexpr const char* kCoordinatorLog = "coordinator.log";
// The name of a log and this are the file that its writer locks.
inline constexpr const char* kLogLockSuffix = ".lock";
// The name of a log and this are its successor while that is written.
inline constexpr const char* kNextLogSuffix = ".next";
// The first bytes of a log.
inline constexpr std::string_view kLogMagic = "HEADRWAL";
// The token that lets this user's other programs reach the coordinator.
inline constexpr const char* kJoinToken = "join.token";

// The names of those files of a run that a new run there may remove.
inline constexpr const char* kFileRecord = ".headroom-files";
// Marks a folder that holds an older run's files until the new one there has
// committed a step.
inline constexpr const char* kOlderRun = ".older-run";

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
      {{kResults, std::string(kTensorboardPrefix) + "*"},
       "YOLOv5's columns, a line for each epoch; the same for TensorBoard, "
       "with pictures and PR curves"},
      {{weights + kBestWeights, weights + kLastWeights},
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
      {{kCoordinatorLog}, "the coordinator's decisions, while the run lasts"},
  };
}

}  // namespace headroom::run_files
