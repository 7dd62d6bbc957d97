// RunProgress: how far a run is, as a rank last reported it; a plain value for
// workers, coordinator and people.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::wire {

struct RunProgress {
  int64_t step = 0, num_steps = 0;  // committed so far, of the whole run
  int64_t epoch = 0, num_epochs = 0;
  int64_t step_in_epoch = 0, steps_per_epoch = 0;
  double box = 0, obj = 0, cls = 0;  // means over the epoch so far
  double images_per_second = 0;      // over all ranks
  int64_t measured_peak_bytes = 0;
  int64_t predicted_peak_bytes = 0;  // 0: not known
  int64_t image_height = 0, image_width = 0;
  std::string phase;           // "start", "train", "validate", "checkpoint"
  int64_t quiet_ms = 0;        // as in coordinator.proto
  int64_t median_step_ms = 0;  // likewise
};

}  // namespace headroom::wire
