// A kernel that traps, as one does that accesses memory which is not its own:
// from then on the device refuses every call of this process (--inject
// device_error@). launch.h has what its launcher promises.
#pragma once

namespace headroom::cuda {

extern "C" int headroom_trap(void* stream);

}  // namespace headroom::cuda
