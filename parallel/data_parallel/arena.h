// Arena: one flat buffer that holds many tensors, row after row of a model.
//
// Gradient buckets, optimizer, EMA, snapshot and checkpoint are then ranges of
// one tensor instead of hundreds of tensors. A row is the unit that ZeRO splits
// and gathers; it can have a storage of its own, whose memory can be released
// while the tensors stay.
//
// Ownership: the arena owns the buffers; the entries' tensors become views and
// keep them alive.
// Threads: as tensors.
// Invariants:
//   1. slots are in the order of the entries and do not overlap; rows likewise;
//   2. each begins at a multiple of 64 bytes;
//   3. rows have whole multiples of `row_parts` x 64 bytes;
//   4. what lies between slots is zero, unless somebody writes it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace headroom::data_parallel {

struct ArenaEntry {
  std::string name;
  at::Tensor* tensor = nullptr;  // dense, any memory format
  int64_t row = 0;               // ascending over the entries
};

// [count] zeros of a type.
using MakeZeros = std::function<at::Tensor(int64_t count, at::ScalarType)>;

struct ArenaOptions {
  at::ScalarType scalar_type = at::kFloat;  // that of all entries
  c10::Device device = c10::kCPU;           // of the buffers
  bool with_gradients = false;
  int row_parts = 1;  // equal, aligned parts that a row can be cut into
  // Each row in a storage of its own.
  bool values_apart = false;
  bool gradients_apart = false;
  // Provides the gradients where they are not apart; none: at::zeros.
  MakeZeros make_gradients = {};
};

class Arena {
 public:
  struct Slot {
    std::string name;
    int64_t offset = 0;  // in elements
    int64_t size = 0;    // in elements, padding excluded
    int64_t row = 0;     // index into rows()
  };
  struct Row {
    int64_t number = 0;  // as the entries say
    int64_t offset = 0;  // in elements
    int64_t size = 0;    // up to the end of the last slot
    int64_t padded_size = 0;
    int64_t first_slot = 0;  // slots [first_slot, last_slot)
    int64_t last_slot = 0;
  };

  // Replaces each entry's tensor by a view with the same sizes, strides and
  // values. With gradients it is a leaf that requires them, and its .grad a
  // view of the gradients into which backward adds in place: freeze with
  // requires_grad_(false) afterwards. No entry: an arena of size 0.
  // REQUIRES: CPU tensors of the type in `options`, wherever the buffers are.
  Arena(std::vector<ArenaEntry> entries, const ArenaOptions& options);

  // Flat, [size()]; undefined if they are apart.
  at::Tensor& values() { return values_; }
  const at::Tensor& values() const { return values_; }
  // Also undefined without gradients.
  at::Tensor& gradients() { return gradients_; }
  const at::Tensor& gradients() const { return gradients_; }
  // Flat, [rows()[row].padded_size].
  const at::Tensor& row_values(int64_t row) const;
  const at::Tensor& row_gradients(int64_t row) const;

  int64_t size() const { return size_; }
  // Of slots, in elements.
  int64_t alignment() const { return alignment_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<Row>& rows() const { return rows_; }

  // The entry of a slot, the same tensor that the model holds.
  const at::Tensor& entry(int64_t slot) const;

  // Another flat buffer of size() elements (EMA, momentum) seen as that entry.
  at::Tensor view(int64_t slot, const at::Tensor& flat) const;

  // REQUIRES: gradients that are not apart.
  void zero_gradients();

 private:
  void lay_out(const std::vector<ArenaEntry>& entries, int row_parts);

  int64_t alignment_;  // in elements
  int64_t size_ = 0;
  std::vector<Slot> slots_;
  std::vector<Row> rows_;
  std::vector<at::Tensor> entries_;
  at::Tensor values_;
  at::Tensor gradients_;
  std::vector<at::Tensor> row_values_;
  std::vector<at::Tensor> row_gradients_;
};

}  // namespace headroom::data_parallel
