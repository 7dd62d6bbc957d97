// Checks that every backend must pass, as functions that all ranks run
// together.
//
// Used by ranks as threads and by ranks as processes, so a check throws
// std::runtime_error instead of using an assertion of the test framework.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

struct CollectiveCheck {
  std::string name;
  void (*run)(Communicator&);
};

const std::vector<CollectiveCheck>& collective_checks();

// How many sockets this process has.
size_t open_sockets();

}  // namespace headroom::collectives
