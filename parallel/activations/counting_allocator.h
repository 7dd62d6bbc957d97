// CountingAllocator: every CPU tensor's bytes, counted, and bounded on request.
//
// The limit throws the real c10::OutOfMemoryError, so that small devices are
// emulated and out-of-memory handling is tested on the paths of real runs.
//
// Each block is preceded by 64 bytes that hold its size: oneDNN's scratch
// memory passes through raw_allocate(), which insists that the data pointer is
// its own deleter context.
//
// There is one object per process, never destroyed: tensors in static storage
// may be released after everything else. All methods may be called from any
// thread. The peak is exact for one thread and for several: it is the largest
// sum that was ever live at once. Where ranks are threads, each counts and
// bounds for itself (count_separately). Injected failures and refusals are
// always the calling thread's own.
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

  // Makes it LibTorch's CPU allocator, and what counts memory from elsewhere
  // (parallel/base/memory_category.h). First statement of main; tensors that
  // exist already stay uncounted. May be called again.
  static void install();

  // Counts what the calling thread allocates from now on for it alone, and the
  // other methods speak of that. A block counts for the thread that allocated
  // it until it is freed, by whatever thread.
  static void count_separately();

  // The calling thread's allocations are host memory that is bounded elsewhere
  // (the loader's queues, what goes to a file): they count in one account of
  // their own, without a limit here, however many threads there are.
  static void count_as_host_memory();
  // Calls count_as_host_memory() for a scope.
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
  // Bounds live_bytes(), exactly.
  void set_limit(int64_t bytes) override { account().limit = bytes; }
  int64_t limit() const override { return account().limit; }

  // Fault injection: the calling thread's n-th allocation of more than 0 bytes
  // from now on (1: the next) throws, once; 0 disarms.
  static void fail_allocation(int64_t n) { countdown() = n; }
  // Allocations before the one that fails, itself included; 0: none is armed.
  static int64_t pending_failure() { return countdown(); }

  // The calling thread's last refusal, if there was one since the last call.
  static std::optional<Refusal> take_refusal();
  std::optional<Refusal> take_last_refusal() override { return take_refusal(); }
  // It keeps none; the C library's heap is worker/kernels/cpu/heap.h's.
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
  static Account& account();       // the calling thread's
  static Account*& own_account();  // null: the process's
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
