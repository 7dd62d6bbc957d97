// What the memory of each rank held during some steps, as a file for Perfetto
// (ui.perfetto.dev) or chrome://tracing, and as a picture.
//
// The trace shows a process per rank: the phases of the steps as slices, and as
// counters the live bytes of each category, their sum, and what the process has
// beyond the most that was counted (code, libraries, threads).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "parallel/activations/memory_meter.h"
#include "parallel/activations/memory_timeline.h"
#include "parallel/collectives/communicator.h"
#include "worker/chart/area_chart.h"

namespace headroom::memory {

struct MemoryRecord {
  std::vector<activations::MemoryTimeline::Event> events;  // one rank's
  bool is_full = false;                                    // the end is missing
};

// The records are in the order of ranks. Times count from the first event of
// any.
std::string to_chrome_trace(const std::vector<MemoryRecord>& ranks);
chart::AreaChart to_chart(const std::vector<MemoryRecord>& ranks);

// The largest value of kUncounted; 0 if there is none.
int64_t most_uncounted_bytes(const MemoryRecord& record);

// --memory-trace: records this rank's tensors during the first steps of a run,
// and writes all ranks' records after each of them into a trace FILE and a
// picture beside it, FILE with .png. The meter and the thread refer to it until
// it is destroyed. Threads: the one that runs the steps. Errors: Error (exit 2)
// when rank 0 cannot write; CommunicationError.
class MemoryTracer {
 public:
  // Makes both files on rank 0, so that a wrong path is refused before the
  // first step. `num_steps` > 0.
  MemoryTracer(std::filesystem::path file, int64_t num_steps, int rank,
               activations::MemoryMeter& memory);
  ~MemoryTracer();
  MemoryTracer(const MemoryTracer&) = delete;
  MemoryTracer& operator=(const MemoryTracer&) = delete;

  // Around a step. end_step() is collective; it returns whether this was the
  // last one.
  void begin_step();
  bool end_step(collectives::Communicator& world);

  // What was written, for people.
  std::string summary() const { return summary_; }

 private:
  static constexpr size_t kMostEvents = 200'000;  // 4.8 MB

  void pause();
  void write(collectives::Communicator& world);

  const std::filesystem::path file_;
  const std::filesystem::path picture_;
  int64_t steps_left_;
  activations::MemoryMeter& memory_;
  activations::MemoryTimeline timeline_{kMostEvents};
  std::string summary_;
};

}  // namespace headroom::memory
