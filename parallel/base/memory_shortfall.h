// MemoryShortfall: what a process was last refused, and what it had. Workers
// report it, a coordinator chooses the next plan by it.
#pragma once

#include <cstdint>

namespace headroom {

struct MemoryShortfall {
  int64_t asked_bytes = 0;  // 0: the C++ heap refused
  int64_t free_bytes = 0;   // room below the limit; without one, of the machine
  int64_t limit_bytes = 0;  // 0: none
  // Bytes for the tensors of a process once it has released all of its own; 0:
  // not known, as without a limit.
  int64_t room_bytes = 0;
};

}  // namespace headroom
