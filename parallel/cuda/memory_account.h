// MemoryAccount: live and peak bytes of one device, by category, counted from
// the caching allocator's events.
//
// The allocator provides sizes and addresses, not purposes. A block gets the
// category that the allocating thread has set (HostServices), and keeps it
// until it is free again.
//
// Threads: the allocator calls take() and give_back() with its lock held; the
// other functions may be called by any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "parallel/activations/memory_timeline.h"
#include "parallel/base/memory_category.h"

namespace headroom::cuda {

class MemoryAccount {
 public:
  void take(uint64_t address, int64_t bytes, MemoryCategory category);
  // Ignores blocks that were allocated before this account existed.
  void give_back(uint64_t address);

  // Counts bytes that `owner` uses but did not allocate as a block of this
  // account (DeviceMemory::hold).
  void hold(const void* owner, int64_t bytes);
  void let_go(const void* owner);

  int64_t live_bytes() const { return all_.live; }
  int64_t peak_bytes() const { return all_.peak; }
  int64_t allocations() const { return allocations_; }
  void reset_peak();
  activations::CategoryBytes live_by_category() const;
  activations::CategoryBytes peak_by_category() const;
  void set_timeline(activations::MemoryTimeline* timeline) {
    timeline_ = timeline;
  }

 private:
  struct Count {
    std::atomic<int64_t> live{0};
    std::atomic<int64_t> peak{0};
    void add(int64_t bytes);
  };
  struct Block {
    int64_t bytes;
    MemoryCategory category;
  };
  void change(MemoryCategory category, int64_t bytes);

  Count all_;
  std::array<Count, kNumMemoryCategories> categories_;
  std::atomic<int64_t> allocations_{0};
  std::atomic<activations::MemoryTimeline*> timeline_{nullptr};
  std::unordered_map<uint64_t, Block> blocks_;  // keyed by address
  std::mutex held_mutex_;
  std::unordered_map<const void*, int64_t> held_;  // bytes of each owner
};

}  // namespace headroom::cuda
