// SharedBuffers: tensors whose memory all ranks of a host have mapped, so that
// a sum can be formed where they lie.
//
// Ownership: a tensor keeps its own memory; the mappings of the peers', and of
// one's own, live as long as this.
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/collectives/shared_segment.h"

namespace headroom::collectives {

class SharedBuffers {
 public:
  // The same stretch of a buffer, seen in the memory of every rank.
  struct Place {
    int64_t number = 0;             // equal on all ranks for the same stretch
    std::vector<std::byte*> parts;  // by rank
  };

  // [count] zeros, and on every rank a tensor of the same size that the others
  // see; undefined where a rank has no memory to share. It counts as a tensor's
  // memory (parallel/base/outside_memory.h). Collective over `ranks`, which
  // must be of one host.
  at::Tensor create(Communicator& ranks, int64_t count, at::ScalarType type);

  // Where `bytes` from `data` on are, if in a buffer.
  std::optional<Place> find(const void* data, int64_t bytes) const;

 private:
  struct Memory {
    std::shared_ptr<void> counted;
    SharedSegment segment;
  };
  struct Buffer {
    int64_t bytes = 0;
    std::shared_ptr<Memory> own;
    std::vector<SharedSegment> peers;
    std::vector<std::byte*> parts;  // by rank
  };

  std::vector<Buffer> buffers_;
};

}  // namespace headroom::collectives
