// memory_event: one line of events.jsonl for an attempt that ran out of memory.
//
// Threads: pure, but for asking the system how much memory is free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parallel/activations/counting_allocator.h"

namespace headroom::memory {

struct StepEvent {
  std::string kind;              // "out_of_memory", "activations", "fault",
                                 // "label_bound" or "memory_prediction"
  std::string reason;            // in words
  std::string detail_json = "";  // further fields, an object; "" for none
};

// What an allocation that failed was short of.
struct MemoryShortfall {
  int64_t asked_bytes = 0;  // 0: the C++ heap refused
  int64_t free_bytes = 0;   // below the limit; of the machine without one
  int64_t limit_bytes = 0;  // 0: none
};

// `refusal`: of the allocator; none where the C++ heap refused.
MemoryShortfall memory_shortfall(
    const std::optional<activations::CountingAllocator::Refusal>& refusal);

// `phase`: "forward", "backward", "validation", "loader", "checkpoint".
// `change`: what is done about it. Fields: phase, asked_bytes, free_bytes,
// limit_bytes, change; null: not known, or none.
StepEvent out_of_memory_event(const std::string& phase,
                              const std::string& failure,
                              const MemoryShortfall& shortfall,
                              const std::string& change);
inline StepEvent out_of_memory_event(
    const std::string& phase, const std::string& failure,
    const std::optional<activations::CountingAllocator::Refusal>& refusal,
    const std::string& change) {
  return out_of_memory_event(phase, failure, memory_shortfall(refusal), change);
}

}  // namespace headroom::memory
