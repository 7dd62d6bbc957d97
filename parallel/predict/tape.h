// MemoryTape: which buffers of a training step are alive at once, counted
// without a tensor.
//
// A buffer lives as long as somebody holds it, as a tensor's memory does; the
// tape knows the sum, its peak, and what each row of the model has allocated of
// it. The files beside this one hold buffers as the worker's code holds
// tensors, so that the peak is found where it really is.
//
// Given a caching allocator, the tape asks it for each buffer too, so that what
// a device's segments come to is known (replay_step in step.h).
//
// Ownership: buffers are shared; the tape must outlive them. Borrows the
// allocator.
// Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/predict/caching_allocator.h"

namespace headroom::predict {

class Derivation;
class Tape;

struct Buffer {
  Buffer(Tape& on, int64_t size, int64_t of);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Tape& tape;
  const int64_t bytes;
  const int64_t row;
  const std::optional<CachingAllocator::Block> block;
  // How it can be made again (derivation.h); null: it cannot.
  std::shared_ptr<Derivation> derivation;
};

// Null where there is no memory.
using Memory = std::shared_ptr<Buffer>;

class Tape {
 public:
  explicit Tape(CachingAllocator* device = nullptr) : device_(device) {}

  // What follows is allocated for this row.
  void set_row(int64_t row) { row_ = row; }

  Memory allocate(int64_t bytes) {
    return std::make_shared<Buffer>(*this, bytes, row_);
  }
  // Allocated and let go at once.
  void touch(int64_t bytes) {
    peak_ = std::max(peak_, live_ + bytes);
    give_back(take(bytes));
  }

  int64_t live_bytes() const { return live_; }
  int64_t live_bytes_of(int64_t row) const {
    const auto at = static_cast<size_t>(row + 1);
    return at < rows_.size() ? rows_[at] : 0;
  }
  int64_t peak_bytes() const { return peak_; }
  void reset_peak() { peak_ = live_; }
  // Has the device had room for all?
  bool fits() const { return fits_; }

 private:
  friend struct Buffer;
  void add(int64_t bytes, int64_t row) {
    live_ += bytes;
    const auto at = static_cast<size_t>(row + 1);
    if (at >= rows_.size()) rows_.resize(at + 1, 0);
    rows_[at] += bytes;
    peak_ = std::max(peak_, live_);
  }

  // Nothing of a tensor without elements, or beyond the device's limit.
  std::optional<CachingAllocator::Block> take(int64_t bytes) {
    if (device_ == nullptr || bytes == 0) return std::nullopt;
    const auto block = device_->allocate(bytes);
    if (!block) fits_ = false;
    return block;
  }
  void give_back(const std::optional<CachingAllocator::Block>& block) {
    if (block) device_->free(*block);
  }

  CachingAllocator* const device_;
  bool fits_ = true;
  int64_t row_ = -1;
  int64_t live_ = 0;
  int64_t peak_ = 0;
  std::vector<int64_t> rows_;  // from row -1, which is nobody's
};

inline Buffer::Buffer(Tape& on, int64_t size, int64_t of)
    : tape(on), bytes(size), row(of), block(on.take(size)) {
  tape.add(bytes, row);
}
inline Buffer::~Buffer() {
  tape.add(-bytes, row);
  tape.give_back(block);
}

}  // namespace headroom::predict
