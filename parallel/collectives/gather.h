// gather_bytes: every rank's bytes, of any length, on every rank.
//
// For results that differ in size by rank, such as the detections of a
// validation shard. Collective; CommunicationError as its communicator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

// Element r of the result is what rank r gave.
std::vector<std::string> gather_bytes(Communicator& communicator,
                                      const std::string& mine);

// Rank `root`'s bytes on every rank.
std::string broadcast_bytes(Communicator& communicator,
                            const std::string& bytes, int root);

}  // namespace headroom::collectives
