// MemoryTape: which buffers of a training pass are alive at once, counted
// without a tensor.
//
// A buffer lives from its allocation to the last release; the tape knows the
// sum and its peak. How autograd holds on to buffers is told by whoever drives
// it (micro_batch_memory.h).
//
// Threads: one.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom {

class MemoryTape {
 public:
  using Buffer = int;
  static constexpr Buffer kNone = -1;

  // Holds one reference.
  Buffer allocate(int64_t bytes);
  void retain(Buffer buffer);
  // Nothing happens to kNone.
  void release(Buffer buffer);
  // Allocated and released again.
  void touch(int64_t bytes);

  bool is_shared(Buffer buffer) const { return at(buffer).references > 1; }
  int64_t bytes(Buffer buffer) const { return at(buffer).bytes; }
  int64_t live_bytes() const { return live_; }
  int64_t peak_bytes() const { return peak_; }

 private:
  struct Entry {
    int64_t bytes = 0;
    int references = 0;
  };
  const Entry& at(Buffer buffer) const;

  std::vector<Entry> entries_;
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

}  // namespace headroom
