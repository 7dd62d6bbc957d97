// CountingAllocator: counts the bytes of all CPU tensors, with an optional
// limit.
//
// An allocation above the limit throws the real c10::OutOfMemoryError. So a
// small device can be emulated, and out-of-memory handling is tested on the
// code paths of real runs.
//
// Each block is preceded by 64 bytes with its size. The size cannot be in the
// deleter's context, because oneDNN allocates its scratch memory with
// raw_allocate(), which requires the context to be the data pointer itself.
//
// There is one object per process, which is never destroyed, because tensors in
// static storage may be released after everything else. All methods may be
// called from any thread. The peak is exact, also with several threads: it is
// the largest sum that was live at one moment. If ranks are threads, each
// counts and limits for itself (count_separately). Injected failures and
// refusals are always per thread.
#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "parallel/activations/memory_meter.h"
#include "parallel/base/memory_category.h"

namespace headroom::activations {

class CountingAllocator final : public c10::Allocator, public MemoryMeter {
  struct Account;

 public:
  static CountingAllocator& instance();

  // Makes instance() LibTorch's CPU allocator and the counter of OutsideMemory
  // (parallel/base/memory_category.h). Call it first in main: tensors that
  // exist already are not counted. May be called again.
  static void install();

  // Gives the calling thread its own counters and limit (an Account): its later
  // allocations count there, and the other methods, called from this thread,
  // refer to this account. A block counts for the thread that allocated it,
  // until any thread frees it.
  static void count_separately();

  // From now on counts the calling thread's allocations as host memory, which
  // other code limits (the loader's queues, data for files). All such threads
  // share one account without a limit.
  static void count_as_host_memory();
  // Calls count_as_host_memory() for a scope, then restores the account.
  class HostMemory {
   public:
    HostMemory() : before_(own_account()) { count_as_host_memory(); }
    ~HostMemory() { own_account() = before_; }
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;

   private:
    Account* const before_;
  };

  int64_t live_bytes() const override { return account().live; }
  int64_t peak_bytes() const override { return account().peak; }
  void reset_peak() override;
  CategoryBytes live_by_category() const override;
  CategoryBytes peak_by_category() const override;
  void set_timeline(MemoryTimeline* timeline) override {
    account().timeline = timeline;
  }
  int64_t allocations() const override { return account().allocations; }
  // Refuses allocations that would raise live_bytes() above `bytes`.
  void set_limit(int64_t bytes) override { account().limit = bytes; }
  int64_t limit() const override { return account().limit; }

  // Fault injection: the calling thread's n-th allocation of more than 0 bytes
  // (1: the next) throws, once. 0 disarms.
  static void fail_allocation(int64_t n) { countdown() = n; }
  // Allocations left, including the one that will fail; 0 if none is armed.
  static int64_t pending_failure() { return countdown(); }

  // The calling thread's last refusal, if one occurred since the last call.
  static std::optional<Refusal> take_refusal();
  std::optional<Refusal> take_last_refusal() override { return take_refusal(); }
  // This allocator caches nothing. For the C library's heap see
  // worker/kernels/cpu/heap.h.
  void release_caches() override {}

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* target, const void* source, size_t bytes) const override;

 private:
  struct Account {
    std::atomic<int64_t> live{0};
    std::atomic<int64_t> peak{0};
    std::atomic<int64_t> allocations{0};
    std::atomic<int64_t> limit{kNoLimit};
    struct Category {
      std::atomic<int64_t> live{0};
      std::atomic<int64_t> peak{0};
    };
    std::array<Category, kNumMemoryCategories> categories;
    std::atomic<MemoryTimeline*> timeline{nullptr};
  };
  struct Header {
    Account* account;
    int64_t bytes;
    MemoryCategory category;
  };

  CountingAllocator() = default;
  static Account& account();       // the calling thread's account
  static Account*& own_account();  // nullptr means the process's account
  static int64_t& countdown();
  static std::optional<Refusal>& last_refusal();
  [[noreturn]] static void refuse(const Account& account, int64_t bytes,
                                  const std::string& message);
  static void reserve(Account& account, int64_t bytes);
  static std::shared_ptr<void> count_outside(int64_t bytes);
  // Adds `bytes`, which may be negative, to the category.
  static void note(Account& account, MemoryCategory category, int64_t bytes);
  static void release(void* data);
};

}  // namespace headroom::activations
