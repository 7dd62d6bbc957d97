#include "coordinator/run/rank_assignment.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace headroom::coordinator {

std::vector<RankedMember> assign_ranks(std::vector<Member> members) {
  std::map<std::string, int> first_rank;  // of a machine
  std::map<std::string, int> count;
  for (const Member& member : members) {
    const auto [entry, added] =
        first_rank.try_emplace(member.hostname, member.launcher_rank);
    if (!added) entry->second = std::min(entry->second, member.launcher_rank);
    ++count[member.hostname];
  }
  const auto key = [&](const Member& member) {
    return std::tie(first_rank.at(member.hostname), member.hostname,
                    member.launcher_rank, member.node_id, member.local_slot);
  };
  std::sort(members.begin(), members.end(),
            [&](const Member& a, const Member& b) { return key(a) < key(b); });
  std::vector<RankedMember> ranked;
  std::map<std::string, int> taken;
  for (const Member& member : members) {
    RankedMember entry;
    entry.worker_id = member.worker_id;
    entry.rank = static_cast<int>(ranked.size());
    entry.local_rank = taken[member.hostname]++;
    entry.local_world_size = count.at(member.hostname);
    ranked.push_back(entry);
  }
  return ranked;
}

}  // namespace headroom::coordinator
