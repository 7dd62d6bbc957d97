// A lock on a file that somebody may be asking about just now.
#pragma once

namespace headroom {

// Takes the exclusive flock of an open file. Who asks whether it is held holds
// it shared for a moment: that is waited for, 200 ms at most. False where it is
// held longer.
bool lock_soon(int descriptor);

}  // namespace headroom
