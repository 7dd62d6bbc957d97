#include "coordinator/run/quorum.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "parallel/base/text.h"

namespace headroom::coordinator {
namespace {

// Thousands may be missing.
std::string list_of(const std::vector<const Member*>& members) {
  return first_of(members, 3, [](const Member* member) {
    return member->worker_id + " on " + member->hostname;
  });
}

}  // namespace

QuorumDecision decide_quorum(TimePoint now, TimePoint since,
                             const std::vector<Member>& members,
                             const QuorumOptions& options) {
  QuorumDecision decision;
  const auto has_joined = [](const Member& member) {
    return member.state == MemberState::kJoined;
  };
  const size_t expected = static_cast<size_t>(options.expected_workers);
  const auto joined =
      static_cast<size_t>(std::ranges::count_if(members, has_joined));
  if (joined == expected) {
    std::ranges::copy_if(members, std::back_inserter(decision.members),
                         has_joined);
    decision.reason = expected == 1 ? "the only worker has joined"
                                    : "all " + std::to_string(expected) +
                                          " workers have joined";
    return decision;
  }
  decision.reason = std::to_string(joined) + " of " + std::to_string(expected) +
                    " workers have joined";
  std::vector<const Member*> missing;
  for (const Member& member : members) {
    if (!has_joined(member)) missing.push_back(&member);
  }
  if (!missing.empty()) decision.reason += "; missing: " + list_of(missing);
  if (members.size() < expected) {
    decision.reason +=
        "; " + std::to_string(expected - members.size()) + " have no agent yet";
  }
  if (now - since > options.join_timeout) {
    decision.timed_out = true;
    const auto limit =
        std::chrono::duration_cast<std::chrono::seconds>(options.join_timeout);
    decision.reason +=
        "; gave up after " + std::to_string(limit.count()) + " s";
  }
  return decision;
}

std::vector<RankedMember> assign_ranks(std::vector<Member> members) {
  std::map<std::string, int> first_rank;  // each machine's first rank
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
