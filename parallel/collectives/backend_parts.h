// Code shared by backends: checks of operands, views of tensors for sending,
// and the members of a split().
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/collectives/communicator.h"

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

struct SplitMembers {
  std::vector<int> ranks;  // Ranks of the old communicator, in their new order.
  int rank = 0;            // this rank's position in `ranks`
  int largest = 0;         // number of ranks of the largest part
};

// The ranks of this rank's color, ordered by key, then by rank. Collective.
SplitMembers split_members(Communicator& communicator, int color, int key);

}  // namespace headroom::collectives
