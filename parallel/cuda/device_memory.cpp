#include "parallel/base/text.h"
#include "parallel/cuda/plugin_parts.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/cuda/memory_account.h"

namespace headroom::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;
using allocator::TraceEntry;
using c10::CachingAllocator::StatType;

constexpr auto kAggregate = static_cast<size_t>(StatType::AGGREGATE);

std::optional<devices::DeviceMemory::HistoryEvent::Action> action_of(
    TraceEntry::Action action) {
  using Action = devices::DeviceMemory::HistoryEvent::Action;
  switch (action) {
    case TraceEntry::ALLOC:
      return Action::kAllocate;
    case TraceEntry::FREE_COMPLETED:
      return Action::kFree;
    case TraceEntry::SEGMENT_ALLOC:
    case TraceEntry::SEGMENT_MAP:
      return Action::kSegmentAllocate;
    case TraceEntry::SEGMENT_FREE:
    case TraceEntry::SEGMENT_UNMAP:
      return Action::kSegmentFree;
    case TraceEntry::OOM:
      return Action::kFull;
    default:
      return std::nullopt;
  }
}

// The category of the plugin's innermost MemoryCategoryScope, if there is one,
// otherwise of the program's innermost scope.
MemoryCategory category_of(int64_t bytes,
                           const devices::HostServices& services) {
  const MemoryCategory here = MemoryCategoryScope::of(bytes);
  return here != MemoryCategory::kOther ? here : services.category_of(bytes);
}

class CudaDeviceMemory final : public devices::DeviceMemory {
 public:
  CudaDeviceMemory(int device, int64_t total_bytes)
      : device_(static_cast<c10::DeviceIndex>(device)),
        total_bytes_(total_bytes) {}

  int64_t live_bytes() const override { return account_.live_bytes(); }
  int64_t peak_bytes() const override { return account_.peak_bytes(); }
  void reset_peak() override {
    account_.reset_peak();
    allocator::resetPeakStats(device_);
  }
  activations::CategoryBytes live_by_category() const override {
    return account_.live_by_category();
  }
  activations::CategoryBytes peak_by_category() const override {
    return account_.peak_by_category();
  }
  void set_timeline(activations::MemoryTimeline* timeline) override {
    account_.set_timeline(timeline);
  }
  int64_t allocations() const override { return account_.allocations(); }

  void set_limit(int64_t bytes) override {
    HEADROOM_CHECK(bytes > 0, cat(bytes, " bytes"));
    limit_ = bytes;
    bound_segments(bytes);
  }
  int64_t limit() const override { return limit_; }

  std::optional<Refusal> take_last_refusal() override {
    const std::lock_guard lock(refusal_mutex_);
    return std::exchange(refusal_, std::nullopt);
  }
  void note_refusal(int64_t asked_bytes) {
    pending_failure_ = 0;
    const std::lock_guard lock(refusal_mutex_);
    refusal_ = Refusal{asked_bytes, reserved_bytes(), limit_};
  }

  int64_t reserved_bytes() const override {
    return allocator::getDeviceStats(device_)
        .reserved_bytes[kAggregate]
        .current;
  }
  int64_t peak_reserved_bytes() const override {
    return allocator::getDeviceStats(device_).reserved_bytes[kAggregate].peak;
  }
  int64_t retries() const override {
    return allocator::getDeviceStats(device_).num_alloc_retries;
  }
  void release_caches() override { allocator::emptyCache(); }

  void hold(const void* owner, int64_t bytes) override {
    account_.hold(owner, bytes);
  }
  void let_go(const void* owner) override { account_.let_go(owner); }

  // Frees unused segments and forbids new ones, so that the next request that
  // fits in no segment is refused.
  void fail_allocation(int64_t n) override {
    pending_failure_ = n > 0 ? 1 : 0;
    if (n > 0) allocator::emptyCache();
    bound_segments(n > 0 ? 1 : limit_.load());
  }
  int64_t pending_failure() const override { return pending_failure_; }

  void record_history(int64_t most_events) override {
    allocator::recordHistory(most_events > 0, nullptr,
                             static_cast<size_t>(most_events),
                             c10::CachingDeviceAllocator::RecordContext::NEVER,
                             /*clearHistory=*/true, {});
  }

  std::vector<HistoryEvent> history() const override {
    const allocator::SnapshotInfo snapshot = allocator::snapshot();
    std::vector<HistoryEvent> events;
    const auto device = static_cast<size_t>(device_);
    if (device >= snapshot.device_traces.size()) return events;
    for (const TraceEntry& entry : snapshot.device_traces[device]) {
      const auto action = action_of(entry.action_);
      if (!action) continue;
      events.push_back({.action = *action,
                        .address = entry.addr_,
                        .bytes = static_cast<int64_t>(entry.size_),
                        .stream = reinterpret_cast<uint64_t>(entry.stream_),
                        .microseconds = entry.time_.t_});
    }
    return events;
  }

  // Called with the allocator's lock held.
  void note(const TraceEntry& entry, const devices::HostServices& services) {
    if (entry.action_ == TraceEntry::ALLOC) {
      const auto bytes = static_cast<int64_t>(entry.size_);
      account_.take(entry.addr_, bytes, category_of(bytes, services));
    } else if (entry.action_ == TraceEntry::FREE_COMPLETED) {
      account_.give_back(entry.addr_);
    }
  }

 private:
  void bound_segments(int64_t bytes) {
    const double part =
        static_cast<double>(bytes) / static_cast<double>(total_bytes_);
    allocator::setMemoryFraction(std::min(1.0, part), device_);
  }

  const c10::DeviceIndex device_;
  const int64_t total_bytes_;
  MemoryAccount account_;
  std::atomic<int64_t> limit_{kNoLimit};
  std::atomic<int64_t> pending_failure_{0};
  std::mutex refusal_mutex_;
  std::optional<Refusal> refusal_;
};

}  // namespace

std::vector<devices::DeviceMemory*> make_cuda_memories(
    const devices::HostServices& services) {
  static auto* const memories = new std::vector<CudaDeviceMemory*>;
  const int count = cuda_device_count();
  std::vector<devices::DeviceMemory*> result;
  if (count == 0) return result;
  // Before this call the allocator has no devices.
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  for (int device = 0; device < count; ++device) {
    memories->push_back(
        new CudaDeviceMemory(device, describe_cuda_device(device).total_bytes));
    result.push_back(memories->back());
  }
  allocator::attachAllocatorTraceTracker([services](const TraceEntry& entry) {
    (*memories)[static_cast<size_t>(entry.device_)]->note(entry, services);
  });
  allocator::attachOutOfMemoryObserver(
      [](int64_t device, size_t asked, size_t, size_t) {
        (*memories)[static_cast<size_t>(device)]->note_refusal(
            static_cast<int64_t>(asked));
      });
  return result;
}

}  // namespace headroom::cuda
