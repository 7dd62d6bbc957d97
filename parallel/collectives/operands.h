// What all backends check of their operands, and the form in which they send
// them.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::collectives {

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

}  // namespace headroom::collectives
