// CountingAllocator: every CPU tensor's bytes, counted, and bounded on request.
//
// The limit throws the real c10::OutOfMemoryError, so that small devices are
// emulated and out-of-memory handling is tested on the paths of real runs.
//
// Each block is preceded by 64 bytes that hold its size: oneDNN's scratch
// memory passes through raw_allocate(), which insists that the data pointer is
// its own deleter context.
//
// Ownership: one object per process, never destroyed: tensors in static
// storage may be released after everything else.
// Threads: all methods from any thread. The peak is exact for one thread and
// for several: it is the largest sum that was ever live at once.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>
#include <limits>

namespace headroom {

class CountingAllocator final : public c10::Allocator {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  static CountingAllocator& instance();

  // Makes it LibTorch's CPU allocator. First statement of main; tensors that
  // exist already stay uncounted. May be called again.
  static void install();

  int64_t live_bytes() const { return live_; }
  // Since the last reset_peak(), which sets it to live_bytes().
  int64_t peak_bytes() const { return peak_; }
  void reset_peak();
  // Allocations of more than 0 bytes since the start.
  int64_t allocations() const { return allocations_; }

  // From now on no allocation may bring live_bytes() above this.
  void set_limit(int64_t bytes) { limit_ = bytes; }
  int64_t limit() const { return limit_; }

  // Fault injection: the n-th allocation of more than 0 bytes from now on
  // (1: the next) throws, once; 0 disarms.
  void fail_allocation(int64_t n) { countdown_ = n; }

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* target, const void* source, size_t bytes) const override;

 private:
  CountingAllocator() = default;
  void reserve(int64_t bytes);
  static void release(void* data);

  std::atomic<int64_t> live_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> allocations_{0};
  std::atomic<int64_t> limit_{kNoLimit};
  std::atomic<int64_t> countdown_{0};
};

}  // namespace headroom
