// RunProgress: how far a run is, as last reported by a rank; a plain struct for
// workers, the coordinator and display.
#pragma once

#include <cstdint>

#include "parallel/base/loss_terms.h"

namespace headroom::wire {

// A worker's current activity; kUnknown until it has reported. The numbers are
// sent in messages: add new ones at the end and move kLastWorkerPhase.
enum class WorkerPhase {
  kUnknown,
  kStart,
  kTrain,
  kValidate,
  kCheckpoint,
  kPictures
};
inline constexpr WorkerPhase kLastWorkerPhase = WorkerPhase::kPictures;

// "start", "train", ...; "" for kUnknown.
constexpr const char* to_string(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kUnknown:
      return "";
    case WorkerPhase::kStart:
      return "start";
    case WorkerPhase::kTrain:
      return "train";
    case WorkerPhase::kValidate:
      return "validate";
    case WorkerPhase::kCheckpoint:
      return "checkpoint";
    case WorkerPhase::kPictures:
      return "pictures";
  }
  return "";
}

struct RunProgress {
  int64_t step = 0, num_steps = 0;  // steps committed so far; in the whole run
  int64_t epoch = 0, num_epochs = 0;
  int64_t step_in_epoch = 0, steps_per_epoch = 0;
  NamedLosses losses;            // means over the epoch so far
  double images_per_second = 0;  // defined in coordinator.proto
  int64_t measured_peak_bytes = 0;
  int64_t predicted_peak_bytes = 0;  // 0 if unknown
  int64_t image_height = 0, image_width = 0;
  WorkerPhase phase = WorkerPhase::kUnknown;
  int64_t quiet_ms = 0;        // defined in coordinator.proto
  int64_t core_wait_ms = 0;    // defined in coordinator.proto
  int64_t median_step_ms = 0;  // defined in coordinator.proto
  // Images of all ranks in the validation after an epoch; 0 outside validation.
  int64_t images_validated = 0, images_to_validate = 0;
};

}  // namespace headroom::wire
