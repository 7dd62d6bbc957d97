// Plan: all that a worker needs to know about how a run is split.
//
// Plain data: a pure function of (model profile, cluster, request), printed,
// sent over gRPC, stored in the checkpoint, and applied from outside to a model
// that knows nothing of ranks.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/plan/layout.h"

namespace headroom {

// How the threads of one process and the processes of one run exchange tensors.
enum class Backend { kAuto, kGloo, kMpi };

struct Plan {
  ParallelLayout layout;
  Backend backend = Backend::kGloo;
  // Samples of one rank that go through the network at once. A step's share
  // of a rank is cut into as many micro-batches as that takes.
  int64_t micro_batch_size = 0;
  // Consecutive samples of the global batch that share batch-norm statistics.
  int64_t batch_norm_group_size = 0;
  std::string reason;  // why this plan, in words

  bool operator==(const Plan&) const = default;
};

}  // namespace headroom
