// Host memory that a worker needs besides its tensors: the loaders of training
// and validation, model layers while they are written to a file, a copy of the
// state that is written during training, copies of state that peers keep for
// each other, and a picture while it is drawn.
// --host-memory-limit bounds their sum. If the limit has no room for the copy,
// training waits while checkpoints are written; if it has no room for pictures,
// none are drawn.
//
// Of the images that the ranks of a machine cache together, each rank has its
// part, so that the sum over a machine's ranks counts every image once.
//
// The planner does not read the data set and assumes source images as large as
// the network's input and no detections. Every worker computes these numbers
// again with the data set's real sizes. The offload file is not counted: it is
// on disk, with its own limit.
#pragma once

#include <cstdint>

#include "configs/layers/layer_cost.h"
#include "configs/loader_memory.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom::predict {

// Validation and file writing never overlap: only the larger of the two counts.
struct HostMemory {
  configs::LoaderBudget training, validation;
  int64_t files = 0;
  int64_t state_copy = 0;
  int64_t peer_copies = 0;  // page-locked if they are made from a device
  int64_t pictures = 0;
  // Detections of a validation, record_bytes(). No limit is refused for them:
  // the bound is seldom reached, so they only make the loaders smaller.
  int64_t records = 0;

  int64_t total_bytes() const;
  // The smallest limit with which the loaders can hold one batch.
  int64_t least_bytes() const;
  // The smallest limit that may be set without knowing the data set, whose
  // images may be larger than the network's input. A guess that leaves room for
  // twice the bytes; with even larger images the loaders refuse the limit.
  int64_t least_bytes_unseen() const;
};

// Bytes that the writing rank needs to write layers to a file.
int64_t file_bytes(const std::vector<layers::LayerCost>& layers,
                   configs::Precision precision);

// Bytes of the state copy on the writing rank; 0 if no checkpoint is written
// during training.
int64_t state_copy_bytes(const std::vector<layers::LayerCost>& layers,
                         const configs::RunConfig& config);

// Bytes of the copies that a rank makes of its part of the state and keeps of a
// peer's, if ranks have different parts (worker/checkpoint/peer_replicas.h).
// Counts the peer with the largest part.
int64_t peer_copy_bytes(const std::vector<layers::LayerCost>& layers,
                        const configs::RunConfig& config,
                        const plan::Plan& plan, int stage);

// Bytes that the writing rank needs to draw the largest picture.
int64_t picture_bytes(const configs::RunConfig& config);

// Bytes of the detections that a rank holds of a validation of `images` images:
// its own, if each image has --max-det, and on rank 0 also what it has received
// of the others' (worker/validation/class_records.h).
int64_t record_bytes(const configs::RunConfig& config, int64_t images,
                     int64_t data_parallel_size, bool is_first_rank);

// How the host memory limit is divided. Of the bytes that the state copy and
// pictures leave, the training loader gets at most three quarters, and at least
// its minimum if there is room.
struct HostShares {
  int64_t training = 0;  // 0 if unlimited
  int64_t validation = 0;
  bool copies_state = true;
  bool draws_pictures = true;
};
HostShares host_shares(int64_t limit, const HostMemory& least);

HostMemory host_memory(const configs::RunConfig& config, const plan::Plan& plan,
                       const std::vector<layers::LayerCost>& layers,
                       const plan::MeshCoordinates& rank);

}  // namespace headroom::predict
