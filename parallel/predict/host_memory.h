// The bytes of the host's memory that a worker takes beside its tensors: for
// the loaders of training and validation, layers of the state on their way to a
// file, a copy of the state that is written beside training, and a picture that
// is being drawn. --host-memory-limit bounds their sum; where it leaves no room
// for the copy there is none, and training waits for checkpoints; where it
// leaves none for pictures, none are drawn.
//
// The planner sees no data set: source images are taken to be as large as the
// network's input. Every worker looks again, with the data set's own sizes. The
// offload file is not counted: it lies on a disk, under a bound of its own.
#pragma once

#include <cstdint>

#include "configs/layers/layer_cost.h"
#include "configs/loader_memory.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom::predict {

// The validation's loader and files take turns.
struct HostMemory {
  configs::LoaderBudget training, validation;
  int64_t files = 0;
  int64_t state_copy = 0;
  int64_t pictures = 0;

  int64_t total_bytes() const;
  // The bytes below which not even one batch fits.
  int64_t least_bytes() const;
};

// Bytes of the layers on their way to a file, on the rank that writes.
int64_t file_bytes(const std::vector<layers::LayerCost>& layers,
                   configs::Precision precision);

// Bytes of a copy of the whole state, on the rank that writes; 0 where no
// checkpoint is written while training goes on.
int64_t state_copy_bytes(const std::vector<layers::LayerCost>& layers,
                         const configs::RunConfig& config);

// Bytes of the largest picture with all that goes into it, on the rank that
// writes.
int64_t picture_bytes(const configs::RunConfig& config);

// How a limit is shared. The training's loader gets what the others leave: at
// least what it needs, and at most three quarters.
struct HostShares {
  int64_t training = 0;  // 0: not bounded
  int64_t validation = 0;
  bool copies_state = true;
  bool draws_pictures = true;
};
HostShares host_shares(int64_t limit, const HostMemory& least);

HostMemory host_memory(const configs::RunConfig& config, const plan::Plan& plan,
                       const std::vector<layers::LayerCost>& layers,
                       const plan::MeshCoordinates& rank);

}  // namespace headroom::predict
