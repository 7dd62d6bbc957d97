// MemoryTracer: --memory-trace. Records what this rank's tensors are during the
// first steps of a run, and writes all ranks' records after each of them: a
// trace FILE and a picture beside it, FILE with .png.
//
// Ownership: borrows the meter; it and the thread refer to it until it is
// destroyed. Threads: the thread that runs the steps. Errors: Error (exit 2)
// when rank 0 cannot write; CommunicationError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "parallel/activations/memory_meter.h"
#include "parallel/collectives/communicator.h"

namespace headroom::memory {

class MemoryTracer {
 public:
  // On rank 0 makes both files, so that a wrong path is refused before the
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

  // What was written, in words, for people.
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
