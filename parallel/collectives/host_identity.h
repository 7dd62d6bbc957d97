// Who can share memory with whom: processes of one host, one process-number
// namespace (a container) and one user.
//
// Threads: a pure function of the process.
#pragma once

#include <cstdint>

namespace headroom::collectives {

// Equal in two processes exactly if they can share memory; up to chance, 2^-64.
int64_t host_identity();

}  // namespace headroom::collectives
