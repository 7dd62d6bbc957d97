// MemoryTimeline: every allocation and release of one account of the counting
// allocator, with its time and category, and the phases of the steps.
//
// The record has one size: what comes when it is full is not written down, and
// is_full() says so. Its own memory is not counted. It must outlive the use by
// allocators and threads; the phases come from the step's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "parallel/base/memory_category.h"
#include "parallel/base/step_phase.h"

namespace headroom::activations {

using CategoryBytes = std::array<int64_t, kNumMemoryCategories>;

class MemoryTimeline final : public StepPhaseObserver {
 public:
  enum class Kind : int32_t {
    kLive,   // `bytes` of category `index` are live from now on
    kPhase,  // phase `index` begins
    // The process's resident set is `bytes` larger than the most that was ever
    // counted while recording; freed memory stays with the process.
    kUncounted,
  };
  struct Event {
    int64_t nanoseconds = 0;  // the system's clock
    int64_t bytes = 0;
    Kind kind = Kind::kLive;
    int32_t index = 0;

    bool operator==(const Event&) const = default;
  };

  // 24 bytes an event.
  explicit MemoryTimeline(size_t most_events);

  // Starts, or goes on after a pause, with what is live now.
  void resume(const CategoryBytes& live);
  // `bytes` were taken (> 0) or given back.
  void note(MemoryCategory category, int64_t bytes);
  void begin_phase(StepPhase phase) override;

  std::vector<Event> events() const;
  bool is_full() const;

 private:
  // Both under the lock.
  void add(Event event);
  void raise_peak();

  const int64_t origin_;  // the system's clock minus the steady one
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  size_t most_events_;
  CategoryBytes live_{};
  int64_t peak_ = 0;  // the sum over all categories
  bool is_full_ = false;
};

// Bytes of this process in main memory; 0 where the system does not say.
int64_t resident_bytes();

}  // namespace headroom::activations
