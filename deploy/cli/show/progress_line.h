// The text lines that report a run's progress in logs. Pure functions. On a
// terminal the table of epoch_table.h is used instead.
//
//   epoch 3/60  12/13  box 0.081 obj 0.033 cls 0.021  58.3 img/s  rank 1:
//   1.2 GiB of 2 GiB (predicted 1.3 GiB)  ETA 4m10s          (on one line)
//   epoch 3/60  box 0.081 obj 0.033 cls 0.021  13 steps, 208 images in 4.1s
//   rank 1: 1.2 GiB of 2 GiB (predicted 1.3 GiB)  ETA 4m6s   (on one line)
//   epoch 3/60  P 0.812 R 0.744 mAP50 0.791 mAP 0.452
//
// Epochs count from 0 in RunProgress and from 1 in these lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/run/clock.h"
#include "coordinator/run/run_status.h"
#include "parallel/base/loss_terms.h"
#include "parallel/base/progress.h"

namespace headroom::cli {

// "1.2 GiB"; "-" for 0, which means unknown.
std::string size_or_dash(int64_t bytes);

// The predicted bytes of a rank's steps: for rank 0 from its newest step, for
// the other ranks from the plan. 0 if unknown.
int64_t predicted_bytes(const coordinator::RunStatus& status, int rank);

// The memory of the rank that needs most, among `ranks` live ranks.
struct RankBytes {
  int rank = 0, ranks = 0;
  int64_t measured = 0, predicted = 0;  // 0 if unknown
};
RankBytes fullest_rank(const coordinator::RunStatus& status);

// Whether the run only validates; its progress then counts images, not steps.
bool is_validation(const coordinator::RunStatus& status);

// The remaining seconds, from the pace of the steps that were seen so far.
std::optional<double> remaining_seconds(const wire::RunProgress& progress,
                                        coordinator::TimePoint now, Pace& pace);

// The progress of the whole run, in steps, or in images of a validation.
Progress progress_of_run(const coordinator::RunStatus& status,
                         std::optional<double> eta_seconds);

// The line of a training or of a validation. A training's line shows the memory
// of the rank that needs the most.
std::string progress_line(const coordinator::RunStatus& status,
                          std::optional<double> eta_seconds);

// The training of one epoch, from the detail_json of rank 0's "epoch" event.
struct TrainedEpoch {
  int64_t epoch = 0, num_epochs = 0;
  NamedLosses losses = {};
  int64_t steps = 0, images = 0;  // 0 if an earlier process made the steps
  double seconds = 0;
};
// Returns nullopt if the event cannot be parsed.
std::optional<TrainedEpoch> trained_epoch(const wire::EventRecord& event);

// The validation after an epoch, from rank 0's "validation" event.
struct ValidatedEpoch {
  int64_t epoch = 0;
  double precision = 0, recall = 0, map50 = 0, map = 0;
};
std::optional<ValidatedEpoch> validated_epoch(const wire::EventRecord& event);

// The line of a trained epoch; `status` is the status at the event's time.
// Returns the event's plain reason if it cannot be parsed.
std::string epoch_line(const wire::EventRecord& event,
                       const coordinator::RunStatus& status,
                       std::optional<double> eta_seconds);

// The line of a validation; the event's plain reason if it cannot be parsed.
std::string validation_line(const wire::EventRecord& event, int64_t num_epochs);

// "warning: step 12, rank 1: reason"; parts that the event lacks are left out.
std::string event_line(const wire::EventRecord& event);

}  // namespace headroom::cli
