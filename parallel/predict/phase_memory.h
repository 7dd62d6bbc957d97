// phase_memory: the bytes of tensors that a rank needs outside its steps.
//
//   start-up    the model is built whole on every rank, then cut and split;
//               then once more for its average, and for the lists of exchanges
//   validation  the averaged model without gradients, over so many images at
//               once as the plan says (worker/step/stage_forward.h, validate.h)
//   checkpoint  what lies there between steps: what goes to a file is host
//               memory
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "parallel/predict/memory_model.h"

namespace headroom::predict {

MemoryEstimate estimate_start_up(const MemoryRequest& request,
                                 const plan::MeshCoordinates& rank);
// Without request.validation the plan's bound: its images at once, of the
// largest size that a validation batch has. What lies there between steps, if
// nothing is validated.
MemoryEstimate estimate_validation(const MemoryRequest& request,
                                   const plan::MeshCoordinates& rank);
MemoryEstimate estimate_checkpoint(const MemoryRequest& request,
                                   const plan::MeshCoordinates& rank);

// Totals of all phases.
plan::PhaseBytes estimate_phases(const MemoryRequest& request,
                                 const plan::MeshCoordinates& rank);

// Images of a validation batch that the network can take at once: `most`, or
// the largest number with which no rank needs more than `limit`; at least 1.
// plan.validation_images is not read.
int64_t most_validation_images(const MemoryRequest& request, int64_t most,
                               int64_t limit);

}  // namespace headroom::predict
