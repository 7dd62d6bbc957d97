// The words in which a run's progress is told: pure formatting.
//
//   epoch 3/60  12/13  box 0.081 obj 0.033 cls 0.021  58.3 img/s  rank 1:
//   1.2 GiB of 2 GiB (predicted 1.3 GiB)  ETA 4m10s          (on one line)
//   epoch 3/60  box 0.081 obj 0.033 cls 0.021  13 steps, 208 images in 4.1s
//   rank 1: 1.2 GiB of 2 GiB (predicted 1.3 GiB)  ETA 4m6s   (on one line)
//   epoch 3/60  P 0.812 R 0.744 mAP50 0.791 mAP 0.452
//
// Epochs count from 0 in RunProgress and from 1 for people.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "coordinator/run/run_status.h"

namespace headroom::cli {

// A line of at most `width` characters; 0: no limit. Cut at a word, ending in
// "…". The memory is that of the rank that needs most.
std::string progress_line(const coordinator::RunStatus& status,
                          std::optional<double> eta_seconds, size_t width);

// The "epoch" event of rank 0, an epoch's training: {"epoch", "num_epochs",
// "box", "obj", "cls", "steps", "images", "seconds"} in detail_json. `status`
// is of that time. The event's plain reason if it cannot be read.
std::string epoch_line(const wire::EventRecord& event,
                       const coordinator::RunStatus& status,
                       std::optional<double> eta_seconds);

// The "validation" event of rank 0: {"epoch", "precision", "recall", "map50",
// "map"} in detail_json. Its plain reason if that cannot be read.
std::string validation_line(const wire::EventRecord& event, int64_t num_epochs);

// "warning: step 12, rank 1: reason", as far as the event has them.
std::string event_line(const wire::EventRecord& event);

}  // namespace headroom::cli
