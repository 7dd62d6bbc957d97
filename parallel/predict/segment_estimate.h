// segment_estimate: what the caching allocator of a CUDA device reserves for a
// rank's steps. Tensors are fewer bytes than their segments: requests are
// rounded up, and a segment stays while anything of it is used.
//
// The state between steps is asked for first, each kind in one piece (an
// flat buffer), then two steps, as the second one finds the pieces of the
// first; so it holds for a worker that releases its caches when start-up is
// done.
//
// Without: the context, the buffers of communication, the libraries' workspaces
// (cluster.h has a reserve for them).
//
// Threads: a pure function.
#pragma once

#include "parallel/predict/caching_allocator.h"
#include "parallel/predict/memory_model.h"

namespace headroom::predict {

struct SegmentEstimate {
  int64_t tensor_bytes = 0;   // the most that is asked for at once
  int64_t segment_bytes = 0;  // the most that is reserved for it
  int64_t retries = 0;        // caches released, for the limit
  bool fits = true;
  bool operator==(const SegmentEstimate&) const = default;
};

// `limit` bytes of segments.
SegmentEstimate estimate_segments(const MemoryRequest& request,
                                  const plan::MeshCoordinates& rank,
                                  int64_t limit = CachingAllocator::kNoLimit);

}  // namespace headroom::predict
