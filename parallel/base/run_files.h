// The files of a run's directory: the name of each, and its description for the
// guide's reference page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/base/text.h"

namespace headroom::run_files {

// The run's plan, with the predicted bytes.
inline constexpr const char* kPlan = "plan.json";
// The run's whole configuration.
inline constexpr const char* kRun = "run.yaml";
// The model's layers (configs/layers/model_record.h).
inline constexpr const char* kModel = "model.yaml";
// The committed steps, one JSON object a line.
inline constexpr const char* kSteps = "steps.jsonl";
// The run's events, one JSON object a line.
inline constexpr const char* kEvents = "events.jsonl";
// YOLOv5's columns, one line per epoch.
inline constexpr const char* kResults = "results.csv";
// The results for TensorBoard, which recognises files by this prefix.
inline constexpr const char* kTensorboardPrefix = "events.out.tfevents.";
// The figures of the run and of its best epoch, and how the run ended.
inline constexpr const char* kSummary = "summary.json";
// The run's page as one file.
inline constexpr const char* kReport = "report.html";
// The metrics that headroom val measured.
inline constexpr const char* kJudgement = "results.json";
// Identifies the MLflow run that mirrors this run.
inline constexpr const char* kMlflow = "mlflow.json";
// Faults of the data set.
inline constexpr const char* kDataReport = "data_report.txt";

// The folder of averaged (EMA) weights.
inline constexpr const char* kWeights = "weights";
// The folder of checkpoints, which has one folder per checkpoint.
inline constexpr const char* kCheckpoints = "checkpoints";
// The folder with the output of the processes.
inline constexpr const char* kLogs = "logs";

// The suffix of all weights files.
inline constexpr const char* kWeightsSuffix = ".safetensors";
// The averaged weights after the last epoch, in kWeights.
inline constexpr const char* kLastWeights = "last.safetensors";
// The averaged weights of the best validation, in kWeights.
inline constexpr const char* kBestWeights = "best.safetensors";
// The prefix of the weights that --save-period keeps: epoch12.safetensors.
inline constexpr const char* kEpochPrefix = "epoch";

// The list of files in a checkpoint's folder. It is written last: a folder
// without it is incomplete.
inline constexpr const char* kManifest = "MANIFEST.json";
// The tensors of a checkpoint.
inline constexpr const char* kState = "state.safetensors";

// The training images' labels as a picture.
inline constexpr const char* kLabelsPicture = "labels.jpg";
// The prefixes of the pictures of the first training and validation batches.
inline constexpr const char* kTrainBatchPrefix = "train_batch";
inline constexpr const char* kValidationBatchPrefix = "val_batch";
// The picture of one of the first training batches, with its boxes.
inline std::string train_batch_picture(int64_t batch) {
  return cat(kTrainBatchPrefix, batch, ".jpg");
}
// The columns of kResults as curves.
inline constexpr const char* kResultsPicture = "results.png";
// The precision-recall curve of the last validation.
inline constexpr const char* kCurvePicture = "PR_curve.png";

// The coordinator's log (coordinator/log/write_ahead_log.h). It exists while a
// run is active or can be resumed.
inline constexpr const char* kCoordinatorLog = "coordinator.log";
// log name + kLogLockSuffix is the file that the log's writer locks.
inline constexpr const char* kLogLockSuffix = ".lock";
// log name + kNextLogSuffix is the log's replacement while it is being written.
inline constexpr const char* kNextLogSuffix = ".next";
// The first bytes of a log.
inline constexpr std::string_view kLogMagic = "HEADRWAL";
// The token with which this user's other programs may contact the coordinator.
inline constexpr const char* kJoinToken = "join.token";

// A list of the files of a run that a new run in the same folder may remove.
inline constexpr const char* kFileRecord = ".headroom-files";
// A marker: the folder still holds an older run's files. It is removed when the
// new run has committed a step.
inline constexpr const char* kOlderRun = ".older-run";

struct Description {
  std::vector<std::string> names;  // files or folders; N and * are placeholders
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
