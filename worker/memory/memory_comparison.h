// Compares the memory that a part of a run needed with the memory model's
// prediction. If the part needed more, the item that exceeds its own prediction
// most is named as the cause; the allocator records a category for all its
// bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/activations/memory_meter.h"
#include "parallel/collectives/communicator.h"
#include "parallel/predict/memory_model.h"
#include "worker/memory/memory_ladder.h"

namespace headroom::memory {

// Memory of one kind.
struct MemoryItem {
  std::string name;
  int64_t predicted = 0;
  int64_t measured = 0;  // peak of this item; items peak at different times
};

MemoryItem item_to_blame(const predict::MemoryEstimate& estimate,
                         const activations::CategoryBytes& peaks);

// The memory that one rank needed in a part of a run.
struct MemoryComparison {
  std::string phase;  // "start-up", "step", "validation", "checkpoint"
  predict::MemoryEstimate predicted;
  int64_t measured = 0;
  activations::CategoryBytes peaks = {};

  bool is_more() const { return measured > predicted.total(); }
};

// A warning that more memory was needed. REQUIRES: comparison.is_more().
StepEvent memory_prediction_event(const MemoryComparison& comparison);

// Measures the peak since the construction of this object. Used on the thread
// that trains.
class PhaseWatch {
 public:
  PhaseWatch(std::string phase, activations::MemoryMeter& memory);
  MemoryComparison compare(const predict::MemoryEstimate& predicted) const;

 private:
  std::string phase_;
  activations::MemoryMeter& memory_;
};

// The peak of each rank in one part of a run.
struct PhaseMemory {
  struct Rank {
    int64_t predicted_peak_bytes = 0;
    int64_t measured_peak_bytes = 0;
  };
  std::string phase;
  std::vector<Rank> ranks;
};

// Collective; the result is equal on every rank.
PhaseMemory gather_memory(collectives::Communicator& world,
                          const MemoryComparison& comparison);

}  // namespace headroom::memory
