// The bytes of tensors that a rank needs outside its steps.
//
//   start-up    the model is built whole on every rank, then cut and split;
//               then once more for its average
//   validation  the averaged model without gradients, over so many images at
//               once as the plan says (worker/step/stage_forward.h, validate.h)
//   checkpoint  what lies there between steps: what goes to a file is host
//               memory
#pragma once

#include <cstdint>

#include "parallel/predict/loss.h"
#include "parallel/predict/memory_model.h"
#include "parallel/predict/op_context.h"
#include "parallel/predict/simulated_stage.h"

namespace headroom::predict {

// Images go through a rank's layers without gradients; where the heads come
// together, boxes and the loss are made of them, as worker/step/stage_forward.h
// and worker/validation/validate.h do.
//
// Under ZeRO 1 to 3 a layer's averaged parameters are whole while it runs.
// Parts of an image's heads are joined on the first of its ranks.

struct EvaluationRequest {
  SimulatedStage stage;
  MicroBatchShape shape;           // one group
  int64_t whole_image_height = 0;  // the rows of all ranks
  int spatial_rank = 0;
  LossShape loss;  // whole images', with the head
};

int64_t evaluation_peak_bytes(const EvaluationRequest& request);

// What is allocated while a rank's state is built, in the order of
// worker/step/training_state.h:
//
//   the model, whole, whatever the rank keeps of it
//   its layers again in flat buffers, with gradients; the rest goes
//   the model once more, for its average, and its layers in flat buffers
//   accumulated gradients, moments
//   layers of a checkpoint, one at a time
//
// A tensor is drawn in float32 beside the one that gets it.

struct StartUpRequest {
  SimulatedStage stage;
  int64_t element_bytes = 4;
  bool is_mixed = false;  // a copy of the weights in 16 bits, but for ZeRO 3
  int64_t num_moments = 1;
  bool resumes = false;  // this rank reads a checkpoint
};

int64_t start_up_peak_bytes(const StartUpRequest& request);

MemoryEstimate estimate_start_up(const MemoryRequest& request,
                                 const plan::MeshCoordinates& rank);
// What a validation needs. Without request.validation that is the plan's bound:
// its images at once, of the largest size that a validation batch has. Where
// nothing is validated, what lies there between steps.
MemoryEstimate estimate_validation(const MemoryRequest& request,
                                   const plan::MeshCoordinates& rank);
MemoryEstimate estimate_checkpoint(const MemoryRequest& request,
                                   const plan::MeshCoordinates& rank);

// The totals of all phases.
plan::PhaseBytes estimate_phases(const MemoryRequest& request,
                                 const plan::MeshCoordinates& rank);

// Images of a validation batch that the network can take at once: `most`, or
// the largest number with which no rank needs more than `limit`; at least 1.
// plan.validation_images is not read.
int64_t most_validation_images(const MemoryRequest& request, int64_t most,
                               int64_t limit);

}  // namespace headroom::predict
