#include "coordinator/run/quorum.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "parallel/base/text.h"

namespace headroom::coordinator {
namespace {

// Lists only a few members, because thousands may be missing.
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
    decision.reason = expected == 1
                          ? "the only worker has joined"
                          : cat("all ", expected, " workers have joined");
    return decision;
  }
  decision.reason = cat(joined, " of ", expected, " workers have joined");
  std::vector<const Member*> missing;
  for (const Member& member : members) {
    if (!has_joined(member)) missing.push_back(&member);
  }
  if (!missing.empty()) decision.reason += "; missing: " + list_of(missing);
  if (members.size() < expected) {
    const size_t missing_agents = expected - members.size();
    decision.reason +=
        cat("; ", missing_agents,
            missing_agents == 1 ? " has no agent yet" : " have no agent yet");
  }
  if (now - since > options.join_timeout) {
    decision.timed_out = true;
    const auto limit =
        std::chrono::duration_cast<std::chrono::seconds>(options.join_timeout);
    decision.reason += cat("; gave up after ", limit.count(), " s");
  }
  return decision;
}

std::vector<RankedMember> assign_ranks(std::vector<Member> members) {
  return assign_ranks(members, members);
}

std::vector<RankedMember> assign_ranks(const std::vector<Member>& members,
                                       std::vector<Member> slots,
                                       const std::string& first_host) {
  // The smallest launcher_rank of each machine.
  std::map<std::string, int> first_rank;
  for (const Member& slot : slots) {
    const auto [entry, added] =
        first_rank.try_emplace(slot.hostname, slot.launcher_rank);
    if (!added) entry->second = std::min(entry->second, slot.launcher_rank);
  }
  std::map<std::string, int> count;
  std::set<std::string> taking_part;
  for (const Member& member : members) {
    ++count[member.hostname];
    taking_part.insert(member.worker_id);
  }
  using Key =
      std::tuple<bool, int, const std::string&, int, const std::string&, int>;
  const auto key = [&](const Member& slot) {
    return Key(slot.hostname != first_host, first_rank.at(slot.hostname),
               slot.hostname, slot.launcher_rank, slot.node_id,
               slot.local_slot);
  };
  std::sort(slots.begin(), slots.end(),
            [&](const Member& a, const Member& b) { return key(a) < key(b); });
  std::vector<RankedMember> ranked;
  std::map<std::string, int> places;
  for (const Member& slot : slots) {
    const int place = places[slot.hostname]++;
    if (!taking_part.contains(slot.worker_id)) continue;
    RankedMember entry;
    entry.worker_id = slot.worker_id;
    entry.rank = static_cast<int>(ranked.size());
    entry.local_rank = place;
    entry.local_world_size = count.at(slot.hostname);
    ranked.push_back(entry);
  }
  return ranked;
}

}  // namespace headroom::coordinator
