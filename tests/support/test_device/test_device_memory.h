// TestDeviceMemory: the test device's allocator. Its memory is counted and
// limited like a CUDA device's, separately for each device.
//
// Ownership: objects live until the process ends.
// Threads: any.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "parallel/cuda/memory_account.h"
#include "parallel/devices/device_api.h"

namespace headroom {

class TestDeviceMemory final : public devices::DeviceMemory {
 public:
  static constexpr int kDevices = 4;
  static constexpr int64_t kBytes = int64_t{8} << 30;  // memory of each device

  static TestDeviceMemory& of(int device);
  // Sets the services that supply the program's memory categories. By default,
  // the class uses services of its own.
  static void set_services(const devices::HostServices& services);
  static const devices::HostServices& host_services();
  // Registers the class as LibTorch's allocator for the device type. May be
  // called again.
  static void install();

  int64_t live_bytes() const override { return account_.live_bytes(); }
  int64_t peak_bytes() const override { return account_.peak_bytes(); }
  void reset_peak() override { account_.reset_peak(); }
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
  void set_limit(int64_t bytes) override { limit_ = bytes; }
  int64_t limit() const override { return limit_; }
  std::optional<Refusal> take_last_refusal() override;

  int64_t reserved_bytes() const override { return live_bytes(); }
  int64_t peak_reserved_bytes() const override { return peak_bytes(); }
  int64_t retries() const override { return 0; }
  void release_caches() override;
  void hold(const void* owner, int64_t bytes) override {
    account_.hold(owner, bytes);
  }
  void let_go(const void* owner) override { account_.let_go(owner); }
  void record_history(int64_t) override {}
  std::vector<HistoryEvent> history() const override { return {}; }

  void fail_allocation(int64_t n) override { countdown_ = n; }
  int64_t pending_failure() const override { return countdown_; }

  // Emulates the bytes that a process needs on the device in addition to
  // tensors once it has used the device. As in CUDA, streams and events create
  // a context.
  static constexpr int64_t kContextBytes = 3 << 20;
  void open() { is_open_ = true; }
  bool has_context() const { return is_open_; }
  // Allocates device memory outside of the allocator, as libraries do. Returns
  // false if the device is full.
  bool take_outside(int64_t bytes);
  void give_back_outside(int64_t bytes) { outside_ -= bytes; }
  int64_t own_bytes() const {
    return is_open_ ? kContextBytes + outside_ + live_bytes() : 0;
  }

  void* take(int64_t bytes);
  // The memory is freed once the stream has done its queued work. Later work of
  // this stream may then use the memory; the caller must first wait for other
  // streams that use it.
  void give_back(void* address, const c10::Stream& stream);

 private:
  [[noreturn]] void refuse(int64_t bytes, const std::string& why);

  cuda::MemoryAccount account_;
  std::mutex mutex_;
  std::atomic<int64_t> limit_{kNoLimit};
  std::atomic<int64_t> countdown_{0};
  std::atomic<bool> is_open_{false};
  std::atomic<int64_t> outside_{0};
  std::optional<Refusal> refusal_;
};

}  // namespace headroom
