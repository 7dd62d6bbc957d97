// What the system must allow this process before it starts a run. A library
// that is refused a thread or memory in the middle of its work may wait for
// ever, so these limits are tested first, in milliseconds.
//
// Each function throws Error (exit 5) with the number that is needed and the
// number that is allowed.
#pragma once

#include <cstdint>

namespace headroom::cli {

void require_descriptors();

// The threads of a run on this machine: of the processes that start it, and of
// its workers, which compute with `threads` and read images with
// `loader_threads` each.
struct RunThreads {
  int64_t workers = 1;
  int64_t threads = 1;
  int64_t loader_threads = 8;
  int64_t cores = 1;          // gRPC's pools grow with them, up to 16
  int64_t cores_of_mask = 1;  // CrowdWatch's teams grow with them
  int64_t total() const;
};

// Starts as many threads as the run needs, and ends them again. No other test
// covers all limits: those of the user, of the container and of the machine.
void require_threads(const RunThreads& needed);

// Refuses a limit on address space (ulimit -v) that a worker's libraries alone
// would exceed.
void require_address_space();

}  // namespace headroom::cli
