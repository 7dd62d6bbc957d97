// Evaluation: images through a rank's layers without gradients, and what is
// made of the heads where they come together: boxes, the loss, as
// worker/step/stage_forward.h and worker/validation/validate.h run them.
//
// Under ZeRO 1 to 3 a layer's averaged parameters are whole while it runs.
// Parts of an image's heads are joined on the first of its ranks.
//
// Threads: a pure function.
#pragma once

#include <cstdint>

#include "parallel/predict/loss.h"
#include "parallel/predict/op_context.h"
#include "parallel/predict/simulated_stage.h"

namespace headroom::predict {

struct EvaluationRequest {
  SimulatedStage stage;
  MicroBatchShape extents;         // one group
  int64_t whole_image_height = 0;  // of all ranks' rows
  int spatial_rank = 0;
  LossShape loss;  // of whole images; with the head
};

int64_t evaluation_peak_bytes(const EvaluationRequest& request);

}  // namespace headroom::predict
