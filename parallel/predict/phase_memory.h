// Computes the bytes of tensors that a rank needs outside its steps.
//
//   start-up    the model is built whole on every rank, then cut and split;
//               then the whole model is built once more for the average
//   validation  the averaged model without gradients, over the plan's number
//               of images at once (worker/step/stage_forward.h,
//               validate.h)
//   checkpoint  only the state between steps: data for the file is host memory
#pragma once

#include <cstdint>

#include "parallel/predict/loss.h"
#include "parallel/predict/memory_model.h"
#include "parallel/predict/op_context.h"
#include "parallel/predict/simulated_stage.h"

namespace headroom::predict {

// Simulates an evaluation: a rank's layers run without gradients; the rank with
// all heads computes boxes and the loss, as worker/step/stage_forward.h and
// worker/validation/validate.h do.
//
// Under ZeRO 1 to 3 a layer's averaged parameters are gathered while it runs.
// The first rank of an image joins the heads of the image's parts.

struct EvaluationRequest {
  SimulatedStage stage;
  MicroBatchShape shape;           // a micro-batch with one batch-norm group
  int64_t whole_image_height = 0;  // the image's rows on all ranks together
  int spatial_rank = 0;
  LossShape loss;  // loss of whole images; used if the stage has the head
};

int64_t evaluation_peak_bytes(const EvaluationRequest& request);

MemoryEstimate estimate_start_up(const MemoryRequest& request,
                                 const plan::MeshCoordinates& rank);
// Memory of a validation. If request.validation is not set, returns the plan's
// bound: Plan::validation_images at the largest size of a validation batch.
// If there are no images to validate, returns the bytes held between steps and,
// under ZeRO, those of the weights gathered from other ranks.
MemoryEstimate estimate_validation(const MemoryRequest& request,
                                   const plan::MeshCoordinates& rank);
MemoryEstimate estimate_checkpoint(const MemoryRequest& request,
                                   const plan::MeshCoordinates& rank);

// The total bytes of each phase, without `host`.
plan::PhaseBytes estimate_phases(const MemoryRequest& request,
                                 const plan::MeshCoordinates& rank);

}  // namespace headroom::predict
