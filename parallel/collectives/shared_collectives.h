// Sums, gathers, scatters and broadcasts through the memory of a SharedGroup.
//
// A tensor is staged through the group's parts, piece by piece. Sums of what
// lies in a shared buffer are formed where it lies: each rank adds up its share
// of all ranks' tensors and writes the sum into every one of them. Both ways
// sum in rank order, so all ranks get the same bits. Threads, errors: as
// SharedGroup.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/collectives/shared_group.h"
#include "parallel/collectives/shared_segment.h"

namespace headroom::collectives {

// Tensors whose memory all ranks of a host have mapped, so that a sum can be
// formed where they lie. A tensor keeps its own memory; the mappings of all
// ranks' memory live as long as this object.
class SharedBuffers final : public Communicator::Buffers {
 public:
  // The same stretch of a buffer, seen in the memory of every rank.
  struct Place {
    int64_t number = 0;             // equal on all ranks for the same stretch
    std::vector<std::byte*> parts;  // each rank's part
  };

  // [count] zeros, and on every rank a tensor of the same size that the others
  // see; undefined where a rank has no memory to share. It counts as a tensor's
  // memory (parallel/base/memory_category.h). Collective over `ranks`, which
  // must be of one host.
  at::Tensor create(Communicator& ranks, int64_t count, at::ScalarType type);

  // The place of `bytes` from `data` on, if they lie in a buffer.
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
    std::vector<std::byte*> parts;  // each rank's part
  };

  std::vector<Buffer> buffers_;
};

// Carries out each operation to its end. Tensors are flat and contiguous.
// Borrows group and buffers.
class SharedCollectives {
 public:
  SharedCollectives(SharedGroup& group, const SharedBuffers& buffers)
      : group_(group), buffers_(buffers) {}

  void all_reduce(const at::Tensor& flat, ReduceOp op);
  void all_gather(const at::Tensor& whole, const at::Tensor& part);
  void reduce_scatter(const at::Tensor& part, const at::Tensor& whole);
  void broadcast(const at::Tensor& flat, int root);
  void barrier();

 private:
  void reduce_in_place(const at::Tensor& flat, ReduceOp op,
                       const SharedBuffers::Place& place);
  void reduce_staged(const at::Tensor& flat, ReduceOp op);

  SharedGroup& group_;
  const SharedBuffers& buffers_;
};

}  // namespace headroom::collectives
