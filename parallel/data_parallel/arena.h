// Arena: one flat buffer that holds many tensors.
//
// Gradient buckets, optimizer, EMA, snapshot and checkpoint are then ranges of
// one tensor instead of hundreds of tensors.
//
// Ownership: the arena owns the buffers; the entries' tensors become views and
// keep them alive.
// Threads: as tensors.
// Invariants:
//   1. slots are in the order of the entries and do not overlap;
//   2. each begins at a multiple of 64 bytes;
//   3. what lies between them is zero, unless somebody writes it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace headroom {

struct ArenaEntry {
  std::string name;
  at::Tensor* tensor = nullptr;  // dense, any memory format
};

class Arena {
 public:
  struct Slot {
    std::string name;
    int64_t offset = 0;  // in elements
    int64_t size = 0;    // in elements, padding excluded
  };

  // Replaces each entry's tensor by a view with the same sizes, strides and
  // values. With gradients it is a leaf that requires them, and its .grad a
  // view of gradients() into which backward adds in place: freeze with
  // requires_grad_(false) afterwards.
  // REQUIRES: CPU tensors of one type.
  Arena(std::vector<ArenaEntry> entries, bool with_gradients);

  // Flat, [size()].
  at::Tensor& values() { return values_; }
  const at::Tensor& values() const { return values_; }
  // Undefined without gradients.
  at::Tensor& gradients() { return gradients_; }
  const at::Tensor& gradients() const { return gradients_; }

  int64_t size() const { return values_.numel(); }
  const std::vector<Slot>& slots() const { return slots_; }

  // The entry of a slot, the same tensor that the model holds.
  const at::Tensor& entry(int64_t slot) const;

  // Another flat buffer of size() elements (EMA, momentum) seen as that entry.
  at::Tensor view(int64_t slot, const at::Tensor& flat) const;

  void zero_gradients();

 private:
  std::vector<Slot> slots_;
  std::vector<at::Tensor> entries_;
  at::Tensor values_;
  at::Tensor gradients_;
};

}  // namespace headroom
