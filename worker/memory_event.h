// memory_event: one line of events.jsonl for an attempt that ran out of memory.
//
// Threads: pure, but for asking the system how much memory is free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parallel/activations/counting_allocator.h"

namespace headroom {

struct StepEvent {
  std::string kind;              // "out_of_memory", "activations", "fault",
                                 // "label_bound" or "memory_prediction"
  std::string reason;            // in words
  std::string detail_json = "";  // further fields, an object; "" for none
};

// `phase`: "forward", "backward", "validation", "loader", "checkpoint".
// `refusal`: of the allocator; none where the C++ heap refused. `change`: what
// is done about it. Fields: phase, asked_bytes, free_bytes (below the limit, or
// in the machine where there is none), limit_bytes, change; null: not known.
StepEvent out_of_memory_event(
    const std::string& phase, const std::string& failure,
    const std::optional<CountingAllocator::Refusal>& refusal,
    const std::string& change);

}  // namespace headroom
