#include "worker/memory_event.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

namespace headroom {
namespace {

int64_t free_bytes_of_machine() {
  return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

StepEvent out_of_memory_event(
    const std::string& phase, const std::string& failure,
    const std::optional<CountingAllocator::Refusal>& refusal,
    const std::string& change) {
  nlohmann::ordered_json detail = {{"phase", phase},
                                   {"asked_bytes", nullptr},
                                   {"free_bytes", free_bytes_of_machine()},
                                   {"limit_bytes", nullptr},
                                   {"change", change}};
  if (refusal) {
    detail["asked_bytes"] = refusal->asked_bytes;
    if (refusal->limit_bytes != CountingAllocator::kNoLimit) {
      detail["free_bytes"] = refusal->limit_bytes - refusal->live_bytes;
      detail["limit_bytes"] = refusal->limit_bytes;
    }
  }
  return {"out_of_memory", phase + ": " + failure + "; " + change,
          detail.dump()};
}

}  // namespace headroom
