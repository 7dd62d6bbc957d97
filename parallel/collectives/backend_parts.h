// What backends share: the checks of their operands, the form in which they
// send them, and who belongs to a part of split().
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

// An operation that is done when it begins.
class DoneWork final : public Work {
 public:
  void wait() override {}
};

// `tensor` as [numel] in storage order, sharing its memory: collectives are
// element-wise, so the order of axes does not matter as long as all ranks have
// the same. Not tracked by autograd.
// REQUIRES: what Communicator asks of its tensors (checked).
at::Tensor flat_view(const at::Tensor& tensor);

// The view of a message between two ranks, in which nothing is added: elements
// of 16 bits may be sent too, and are seen as bytes.
at::Tensor message_view(const at::Tensor& tensor);

// Checks that 0 <= rank < size.
void check_rank(int rank, int size);

// Checks that `whole` has `size` times the elements of `part`.
void check_multiple(const at::Tensor& whole, const at::Tensor& part, int size);

struct SplitMembers {
  std::vector<int> ranks;  // Ranks of the old communicator, in their new order.
  int rank = 0;            // this rank's position in it
  int largest = 0;         // the ranks of the largest part of all colors
};

// The ranks of this rank's color, ordered by key, then by rank. Collective.
SplitMembers split_members(Communicator& communicator, int color, int key);

}  // namespace headroom::collectives
