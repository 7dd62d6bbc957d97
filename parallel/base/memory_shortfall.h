// MemoryShortfall: the last allocation that failed in a process, and the memory
// that was available. Workers report it; the coordinator chooses the next plan
// with it.
#pragma once

#include <cstdint>

namespace headroom {

struct MemoryShortfall {
  int64_t asked_bytes = 0;  // requested bytes; 0 if a C++ allocation failed
  // Free bytes below the memory limit, or of the machine if no limit is set.
  int64_t free_bytes = 0;
  int64_t limit_bytes = 0;  // 0 if there is no limit
  // Bytes available for tensors once the process has released all its own
  // memory; 0 if unknown, for example without a limit.
  int64_t room_bytes = 0;
};

}  // namespace headroom
