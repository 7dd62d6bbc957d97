// A kernel that traps, like one that accesses memory outside its allocations.
// Afterwards the device refuses every call of this process (--inject
// device_error@). See launch.h for its launcher's contract.
#pragma once

namespace headroom::cuda {

extern "C" int headroom_trap(void* stream);

}  // namespace headroom::cuda
