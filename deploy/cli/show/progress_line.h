// The words in which a run's progress is told in logs: pure formatting. A
// terminal has the table of epoch_table.h.
//
//   epoch 3/60  12/13  box 0.081 obj 0.033 cls 0.021  58.3 img/s  rank 1:
//   1.2 GiB of 2 GiB (predicted 1.3 GiB)  ETA 4m10s          (on one line)
//   epoch 3/60  box 0.081 obj 0.033 cls 0.021  13 steps, 208 images in 4.1s
//   rank 1: 1.2 GiB of 2 GiB (predicted 1.3 GiB)  ETA 4m6s   (on one line)
//   epoch 3/60  P 0.812 R 0.744 mAP50 0.791 mAP 0.452
//
// Epochs count from 0 in RunProgress and from 1 for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/run/run_status.h"

namespace headroom::cli {

// "1.2 GiB"; "-" for 0, which is not known.
std::string size_or_dash(int64_t bytes);

// What a rank's steps are predicted to need: rank 0 says it of its newest one,
// the plan of all. 0 where it is not known.
int64_t predicted_bytes(const coordinator::RunStatus& status, int rank);

// The memory of the rank that needs most, of `ranks` that are there.
struct RankBytes {
  int rank = 0, ranks = 0;
  int64_t measured = 0, predicted = 0;  // 0 where it is not known
};
RankBytes fullest_rank(const coordinator::RunStatus& status);

// Whether the run is a validation alone, which counts images, not steps.
bool is_validation(const coordinator::RunStatus& status);

// The memory is that of the rank that needs most.
std::string progress_line(const coordinator::RunStatus& status,
                          std::optional<double> eta_seconds);

// The "epoch" event of rank 0, an epoch's training, as its detail_json has it.
struct TrainedEpoch {
  int64_t epoch = 0, num_epochs = 0;
  double box = 0, obj = 0, cls = 0;
  int64_t steps = 0, images = 0;  // 0 where an earlier process took the steps
  double seconds = 0;
};
// Nothing where it cannot be read.
std::optional<TrainedEpoch> trained_epoch(const wire::EventRecord& event);

// The "validation" event of rank 0, likewise.
struct ValidatedEpoch {
  int64_t epoch = 0;
  double precision = 0, recall = 0, map50 = 0, map = 0;
};
std::optional<ValidatedEpoch> validated_epoch(const wire::EventRecord& event);

// `status` is of the event's time. The event's plain reason if it cannot be
// read.
std::string epoch_line(const wire::EventRecord& event,
                       const coordinator::RunStatus& status,
                       std::optional<double> eta_seconds);

// The event's plain reason if it cannot be read.
std::string validation_line(const wire::EventRecord& event, int64_t num_epochs);

// "warning: step 12, rank 1: reason", as far as the event has them.
std::string event_line(const wire::EventRecord& event);

}  // namespace headroom::cli
