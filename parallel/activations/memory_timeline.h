// MemoryTimeline: records every allocation and release that one MemoryMeter
// counts, with time and category, and the phases of the steps.
//
// The capacity is fixed: when it is full, further events are dropped and
// is_full() is true. Its own memory is not counted. It must outlive its use by
// allocators and threads. Phases are reported by the step's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "parallel/activations/step_phase.h"
#include "parallel/base/memory_category.h"

namespace headroom::activations {

using CategoryBytes = std::array<int64_t, kNumMemoryCategories>;

class MemoryTimeline final : public StepPhaseObserver {
 public:
  enum class Kind : int32_t {
    kLive,   // `bytes` of category `index` are live from now on
    kPhase,  // phase `index` begins
    // The resident set of the process is `bytes` larger than the largest
    // counted sum while recording. It may include memory that was freed.
    kUncounted,
  };
  struct Event {
    int64_t nanoseconds = 0;  // time of the system clock
    int64_t bytes = 0;
    Kind kind = Kind::kLive;
    int32_t index = 0;

    bool operator==(const Event&) const = default;
  };

  // Each event takes 24 bytes. A larger capacity covers more steps.
  explicit MemoryTimeline(size_t most_events);

  // Starts recording, or continues after a pause. `live`: the bytes of each
  // category that are live now.
  void resume(const CategoryBytes& live);
  // Records that `bytes` were allocated (> 0) or freed (< 0).
  void note(MemoryCategory category, int64_t bytes);
  void begin_phase(StepPhase phase) override;

  std::vector<Event> events() const;
  bool is_full() const;

 private:
  // REQUIRES for both: the mutex is held.
  void add(Event event);
  void raise_peak();

  const int64_t origin_;  // system clock minus steady clock
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  size_t most_events_;
  CategoryBytes live_{};
  int64_t peak_ = 0;  // largest sum over all categories
  bool is_full_ = false;
};

// Resident bytes of this process; 0 if the system does not report them.
int64_t resident_bytes();

}  // namespace headroom::activations
