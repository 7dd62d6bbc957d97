// Checks that every backend must pass; all ranks call these functions together.
//
// The ranks may be threads or processes, so a check throws std::runtime_error
// instead of using an assertion of the test framework.
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

// The number of sockets that this process has open.
size_t open_sockets();

}  // namespace headroom::collectives
