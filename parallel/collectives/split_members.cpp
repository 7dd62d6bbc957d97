#include "parallel/collectives/split_members.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace headroom::collectives {

SplitMembers split_members(Communicator& communicator, int color, int key) {
  std::array<int64_t, 2> mine = {color, key};
  std::vector<int64_t> all(2 * communicator.size());
  communicator.all_gather(
      at::from_blob(all.data(), {static_cast<int64_t>(all.size())}, at::kLong),
      at::from_blob(mine.data(), {2}, at::kLong));

  std::vector<std::pair<int64_t, int>> keyed;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    if (all[2 * rank] == color) keyed.emplace_back(all[2 * rank + 1], rank);
  }
  std::sort(keyed.begin(), keyed.end());

  SplitMembers members;
  for (const auto& [member_key, rank] : keyed) {
    if (rank == communicator.rank()) {
      members.rank = static_cast<int>(members.ranks.size());
    }
    members.ranks.push_back(rank);
  }
  return members;
}

}  // namespace headroom::collectives
