// memory_trace: what the memory of each rank held during some steps, as a file
// for Perfetto (ui.perfetto.dev) or chrome://tracing, and as a picture.
//
// A process per rank; in it the phases of the steps as slices, and as counters
// each category's live bytes, all of them together, and what the process has
// beyond the most that was counted: code, libraries, threads.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "parallel/activations/memory_timeline.h"
#include "worker/chart/area_chart.h"

namespace headroom::memory {

struct MemoryRecord {
  std::vector<activations::MemoryTimeline::Event> events;  // of one rank
  bool is_full = false;  // and so lacks the end
};

// One per rank, in order of rank. Times count from the first event of any.
std::string to_chrome_trace(const std::vector<MemoryRecord>& ranks);
chart::AreaChart to_chart(const std::vector<MemoryRecord>& ranks);

// The largest of kUncounted; 0 if there is none.
int64_t most_uncounted_bytes(const MemoryRecord& record);

}  // namespace headroom::memory
