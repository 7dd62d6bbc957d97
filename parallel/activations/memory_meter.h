// MemoryMeter: counts the bytes of a device's tensors, and limits them.
//
// One interface for the CPU (counting_allocator.h) and for CUDA devices
// (parallel/devices/device_api.h), so that code which observes memory does not
// depend on the device.
//
// All methods may be called from any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "parallel/activations/memory_timeline.h"

namespace headroom::activations {

class MemoryMeter {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  virtual int64_t live_bytes() const = 0;
  // The peak since the last reset_peak(), which sets it to live_bytes().
  virtual int64_t peak_bytes() const = 0;
  virtual void reset_peak() = 0;
  // Bytes per category. Each category has its peak at its own moment, so the
  // sum of the peaks is at least peak_bytes().
  virtual CategoryBytes live_by_category() const = 0;
  virtual CategoryBytes peak_by_category() const = 0;
  // Also records allocations and releases in `timeline`; nullptr stops
  // recording.
  virtual void set_timeline(MemoryTimeline* timeline) = 0;
  // Number of allocations of more than 0 bytes so far.
  virtual int64_t allocations() const = 0;
  // Refuses allocations that would raise the memory in use above `bytes`.
  virtual void set_limit(int64_t bytes) = 0;
  virtual int64_t limit() const = 0;

  // A failed allocation: the requested size, and the state at that moment.
  struct Refusal {
    int64_t asked_bytes = 0;
    int64_t live_bytes = 0;
    int64_t limit_bytes = kNoLimit;
  };
  // The last refusal, if there was one since the previous call.
  virtual std::optional<Refusal> take_last_refusal() = 0;
  // Returns cached free memory to the device.
  virtual void release_caches() = 0;

 protected:
  ~MemoryMeter() = default;  // nothing is deleted through this type
};

}  // namespace headroom::activations
