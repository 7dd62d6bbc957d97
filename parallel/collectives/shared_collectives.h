// SharedCollectives: sums, gathers, scatters and broadcasts as turns of one
// SharedGroup, to their end.
//
// A tensor is staged through the group's parts, piece by piece. Sums of what
// lies in a shared buffer are formed where it lies: each rank adds
// up its share of all ranks' tensors and writes the sum into every one of them.
//
// Sums are formed in rank order, so all ranks get the same bits, by either way.
//
// Ownership: borrows group and buffers. Threads, errors: as SharedGroup.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "parallel/collectives/communicator.h"
#include "parallel/collectives/shared_buffers.h"
#include "parallel/collectives/shared_group.h"

namespace headroom::collectives {

// All tensors flat and contiguous.
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
