// MemoryMeter: what is counted of a device's tensors, and the bound on them.
//
// One interface for the CPU (counting_allocator.h) and for CUDA devices
// (parallel/devices/device_api.h): what looks at memory does not ask where it
// is.
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
  // Bytes per category. Each has its peak at its own moment: their sum is at
  // least peak_bytes().
  virtual CategoryBytes live_by_category() const = 0;
  virtual CategoryBytes peak_by_category() const = 0;
  // Records allocations and releases there too from now on; null ends it.
  virtual void set_timeline(MemoryTimeline* timeline) = 0;
  // Allocations of more than 0 bytes since the start.
  virtual int64_t allocations() const = 0;
  // Refuses allocations from now on that bring what is in use above this.
  virtual void set_limit(int64_t bytes) = 0;
  virtual int64_t limit() const = 0;

  // What was asked for when an allocation last failed, and what there was.
  struct Refusal {
    int64_t asked_bytes = 0;
    int64_t live_bytes = 0;
    int64_t limit_bytes = kNoLimit;
  };
  // The last refusal, if there was one since the last call.
  virtual std::optional<Refusal> take_last_refusal() = 0;
  // Returns memory that is kept for later to where it came from.
  virtual void release_caches() = 0;

 protected:
  ~MemoryMeter() = default;  // nobody owns one through this
};

}  // namespace headroom::activations
