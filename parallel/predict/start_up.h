// Start-up: the most that is there at once while a rank's state is built, in
// the order of worker/step/training_state.h, then
// worker/step/collective_schedule.h.
//
//   the model, whole, whatever the rank keeps of it
//   its layers again in flat buffers, with gradients; the rest goes
//   the model once more, for its average, and its layers in flat buffers
//   accumulated gradients, moments
//   the model once more, and two small images forward and backward, where
//   passes exchange with other ranks
//   layers of a checkpoint, one at a time
//
// A tensor is drawn in float32 beside the one that gets it.
//
// Threads: a pure function.
#pragma once

#include <cstdint>

#include "parallel/predict/simulated_stage.h"

namespace headroom::predict {

struct StartUpRequest {
  SimulatedStage stage;
  int64_t element_bytes = 4;
  bool is_mixed = false;  // a copy of the weights in 16 bits, but for ZeRO 3
  int64_t num_moments = 1;
  int64_t num_threads = 1;
  int64_t largest_stride = 32;
  bool records_passes = false;
  bool resumes = false;  // this rank reads a checkpoint
};

int64_t start_up_peak_bytes(const StartUpRequest& request);

}  // namespace headroom::predict
