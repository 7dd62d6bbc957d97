// Who belongs to a part of a communicator: the half of split() that all
// backends share.
#pragma once

#include <vector>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

struct SplitMembers {
  std::vector<int> ranks;  // in the old communicator, in their new order
  int rank = 0;            // this rank's position in it
};

// Collective. Ranks of the same color, ordered by key, then by rank.
SplitMembers split_members(Communicator& communicator, int color, int key);

}  // namespace headroom::collectives
