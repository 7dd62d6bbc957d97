// stall: is a worker's training thread stuck?
//
// It is if it has shown no sign of life for longer than max(10 s, 5 x the
// median of its steps) though it waits for no peer. Its process may be well and
// speak: only its agent's SIGKILL frees those who wait for it.
//
// Threads: a pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headroom::coordinator {

// Why it is, as a verb phrase; nothing if it is not.
std::optional<std::string> stall_error(int64_t quiet_ms, int64_t median_step_ms,
                                       int64_t committed_steps);

}  // namespace headroom::coordinator
