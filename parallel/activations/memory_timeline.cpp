#include "parallel/activations/memory_timeline.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <numeric>

namespace headroom::activations {
namespace {

template <typename Clock>
int64_t nanoseconds_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             Clock::now().time_since_epoch())
      .count();
}

}  // namespace

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  if (!(statm >> size >> resident)) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

// The system clock may be set back while a step runs, so times come from the
// steady clock. One offset makes the times of all ranks comparable.
MemoryTimeline::MemoryTimeline(size_t most_events)
    : origin_(nanoseconds_of<std::chrono::system_clock>() -
              nanoseconds_of<std::chrono::steady_clock>()),
      most_events_(most_events) {
  events_.reserve(most_events);
}

void MemoryTimeline::add(Event event) {
  if (events_.size() == most_events_) {
    is_full_ = true;
    return;
  }
  event.nanoseconds = origin_ + nanoseconds_of<std::chrono::steady_clock>();
  events_.push_back(event);
}

void MemoryTimeline::raise_peak() {
  peak_ =
      std::max(peak_, std::accumulate(live_.begin(), live_.end(), int64_t{0}));
}

void MemoryTimeline::resume(const CategoryBytes& live) {
  const std::lock_guard lock(mutex_);
  live_ = live;
  raise_peak();
  for (size_t category = 0; category < live.size(); ++category) {
    add({0, live[category], Kind::kLive, static_cast<int32_t>(category)});
  }
}

void MemoryTimeline::note(MemoryCategory category, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(category);
  live_[index] += bytes;
  raise_peak();
  add({0, live_[index], Kind::kLive, static_cast<int32_t>(index)});
}

void MemoryTimeline::begin_phase(StepPhase phase) {
  const int64_t resident = resident_bytes();
  const std::lock_guard lock(mutex_);
  add({0, 0, Kind::kPhase, static_cast<int32_t>(phase)});
  add({0, resident - peak_, Kind::kUncounted, 0});
}

std::vector<MemoryTimeline::Event> MemoryTimeline::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

bool MemoryTimeline::is_full() const {
  const std::lock_guard lock(mutex_);
  return is_full_;
}

}  // namespace headroom::activations
