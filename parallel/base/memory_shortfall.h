// MemoryShortfall: the last allocation that failed in a process, and the room
// it had. Workers report it; the coordinator chooses the next plan with it.
#pragma once

#include <cstdint>

namespace headroom {

struct MemoryShortfall {
  int64_t asked_bytes = 0;  // 0 if a C++ allocation failed
  int64_t free_bytes = 0;   // below the limit, or on the machine without one
  int64_t limit_bytes = 0;  // 0 if there is no limit
  // Bytes available for tensors once the process has released all of its own; 0
  // if unknown, for example without a limit.
  int64_t room_bytes = 0;
};

}  // namespace headroom
