// Records the memory of each rank during some steps, and writes it as a file
// for Perfetto (ui.perfetto.dev) or chrome://tracing, and as a picture.
//
// The trace has one process for each rank. Phases of steps are slices. Counters
// show the live bytes of each category, their sum, and the memory of the
// process beyond the counted peak (code, libraries, threads).
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
  std::vector<activations::MemoryTimeline::Event> events;  // events of one rank
  bool is_full = false;  // true if the last events are missing
};

// `ranks` has one record per rank, in order. Times count from the earliest
// event of any rank.
std::string to_chrome_trace(const std::vector<MemoryRecord>& ranks);
chart::AreaChart to_chart(const std::vector<MemoryRecord>& ranks);

// The largest bytes of a kUncounted event; 0 if there is no such event.
int64_t most_uncounted_bytes(const MemoryRecord& record);

// --memory-trace: records this rank's tensors during the first steps of a run.
// After each of these steps rank 0 writes the records of all ranks into the
// trace FILE and into a picture in the same folder (FILE with suffix .png). The
// meter and the thread refer to this object until it is destroyed. Used only on
// the thread that runs the steps. Throws Error (exit 2) if rank 0 cannot write
// a file, and CommunicationError.
class MemoryTracer {
 public:
  // Creates both files on rank 0, so that a wrong path is refused before the
  // first step. REQUIRES: num_steps > 0.
  MemoryTracer(std::filesystem::path file, int64_t num_steps, int rank,
               activations::MemoryMeter& memory);
  ~MemoryTracer();
  MemoryTracer(const MemoryTracer&) = delete;
  MemoryTracer& operator=(const MemoryTracer&) = delete;

  // Call these before and after a step. end_step() is collective; it returns
  // whether this was the last step to record.
  void begin_step();
  bool end_step(collectives::Communicator& world);

  // A text for users about the files that were written.
  std::string summary() const { return summary_; }

 private:
  // Takes 4.8 MB; later events are not recorded.
  static constexpr size_t kMostEvents = 200'000;

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
