// Sums, gathers, scatters and broadcasts through the memory of a SharedGroup.
//
// A tensor is copied piece by piece through the group's parts. Tensors in a
// shared buffer are summed in place: each rank adds up its share of the
// elements over all ranks' tensors, and writes the sums into all these tensors.
// Both ways sum in rank order, so all ranks get the same bits. Pieces in a
// shared buffer are gathered by reading the other ranks' tensors. Threads and
// errors: as SharedGroup.
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

// Tensors whose memory is mapped by all ranks of a host, so that they can be
// summed in place. A tensor keeps its own memory alive; other ranks' memory
// stays mapped as long as this object exists.
class SharedBuffers final : public Communicator::Buffers {
 public:
  // A range of a buffer, in the memory of every rank.
  struct Place {
    int64_t number = 0;             // a range has the same number on all ranks
    std::vector<std::byte*> parts;  // the memory of each rank's part
  };

  // Returns a tensor of `count` zeros whose memory all ranks have mapped, or an
  // undefined tensor if a rank has no memory to share. The tensor counts as
  // tensor memory (parallel/base/memory_category.h). Collective over `ranks`,
  // which must be on one host.
  at::Tensor create(Communicator& ranks, int64_t count, at::ScalarType type);

  // The place of [data, data + bytes), if it is in a buffer.
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
    std::vector<std::byte*> parts;  // the memory of each rank's part
  };

  std::vector<Buffer> buffers_;
};

// Collectives that return when they are complete. Tensors are flat and
// contiguous. `group` and `buffers` must outlive this object.
class SharedCollectives {
 public:
  SharedCollectives(SharedGroup& group, const SharedBuffers& buffers)
      : group_(group), buffers_(buffers) {}

  void all_reduce(const at::Tensor& flat, ReduceOp op);
  void all_gather(const at::Tensor& whole, const at::Tensor& part);
  // As Communicator::all_gather_pieces. REQUIRES: `flat` is in a shared buffer.
  void all_gather_pieces(const at::Tensor& flat,
                         const std::vector<int64_t>& part_sizes);
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
