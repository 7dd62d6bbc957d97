// Code shared by backends: checks of operands, views of tensors for sending,
// element-wise sums, and the members of a split().
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/collectives/shared_group.h"

namespace headroom::collectives {

// An operation that is complete from the start.
class DoneWork final : public Work {
 public:
  void wait() override {}
};

// A flat view of `tensor` in storage order, which shares its memory:
// collectives are element-wise, so any order of axes is allowed if it is the
// same on all ranks. Not tracked by autograd. REQUIRES: the tensor is valid for
// Communicator (checked).
at::Tensor flat_view(const at::Tensor& tensor);

// A flat view for a message between two ranks. Messages are not summed, so
// 16-bit elements are allowed too; they are viewed as bytes.
at::Tensor message_view(const at::Tensor& tensor);

// Checks that 0 <= rank < size.
void check_rank(int rank, int size);

// Checks that `whole` has `size` times the elements of `part`.
void check_multiple(const at::Tensor& whole, const at::Tensor& part, int size);

// Reduces the elements [begin, end) of the parts in the order of the parts, so
// that the same values give the same bits: target[i] = parts[0][begin + i] op
// parts[1][begin + i] op …; `target` may be the begin of one of the parts'
// ranges.
void reduce_parts(at::ScalarType type, const std::vector<std::byte*>& parts,
                  ReduceOp op, int64_t begin, int64_t end, std::byte* target);

// A communicator over sockets, as make_network_communicator() makes it.
class SocketCommunicator : public Communicator {
 public:
  // From now on small sums go through the memory of each machine and then
  // between `machines.leaders` (network_collectives.h). Parts of a later
  // split() share memory too. `machine` is this rank's, as in
  // SharedGroup::connect(). Collective.
  virtual void sum_by_machine(SharedGroup::Machines machines,
                              int64_t machine) = 0;
};

struct SplitMembers {
  std::vector<int> ranks;  // Ranks of the old communicator, in their new order.
  int rank = 0;            // this rank's position in `ranks`
  int largest = 0;         // number of ranks of the largest part
};

// The ranks of this rank's color, ordered by key, then by rank. Collective.
SplitMembers split_members(Communicator& communicator, int color, int key);

}  // namespace headroom::collectives
