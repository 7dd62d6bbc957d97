#include "worker/memory/memory_event.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

namespace headroom::memory {
namespace {

int64_t free_bytes_of_machine() {
  return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

MemoryShortfall memory_shortfall(
    const std::optional<activations::CountingAllocator::Refusal>& refusal) {
  MemoryShortfall shortfall;
  shortfall.free_bytes = free_bytes_of_machine();
  if (!refusal) return shortfall;
  shortfall.asked_bytes = refusal->asked_bytes;
  if (refusal->limit_bytes != activations::CountingAllocator::kNoLimit) {
    shortfall.free_bytes = refusal->limit_bytes - refusal->live_bytes;
    shortfall.limit_bytes = refusal->limit_bytes;
  }
  return shortfall;
}

StepEvent out_of_memory_event(const std::string& phase,
                              const std::string& failure,
                              const MemoryShortfall& shortfall,
                              const std::string& change) {
  nlohmann::ordered_json detail = {{"phase", phase},
                                   {"asked_bytes", nullptr},
                                   {"free_bytes", shortfall.free_bytes},
                                   {"limit_bytes", nullptr},
                                   {"change", change}};
  if (shortfall.asked_bytes > 0) detail["asked_bytes"] = shortfall.asked_bytes;
  if (shortfall.limit_bytes > 0) detail["limit_bytes"] = shortfall.limit_bytes;
  return {"out_of_memory", phase + ": " + failure + "; " + change,
          detail.dump()};
}

}  // namespace headroom::memory
