#include "coordinator/run/regrouping.h"

#include <algorithm>

namespace headroom::coordinator {

std::vector<RankedMember> still_to_leave(
    const Regrouping& regrouping, const std::vector<RankedMember>& members) {
  std::vector<RankedMember> waited_for;
  for (const RankedMember& member : members) {
    if (!regrouping.left.contains(member.worker_id))
      waited_for.push_back(member);
  }
  return waited_for;
}

planner::MemoryShortage shortage_of(const Regrouping& regrouping,
                                    const std::vector<RankedMember>& members) {
  planner::MemoryShortage shortage =
      regrouping.left.at(members[0].worker_id).shortage;
  int64_t room = 0;
  for (const RankedMember& member : members) {
    const planner::MemoryShortage& own =
        regrouping.left.at(member.worker_id).shortage;
    if (member.rank == shortage.rank) shortage = own;
    if (own.room_bytes > 0) {
      room = room == 0 ? own.room_bytes : std::min(room, own.room_bytes);
    }
  }
  shortage.room_bytes = room;
  return shortage;
}

ReformingDecision decide_reforming(const ReformingView& view,
                                   const ReformingOptions& options) {
  using Kind = ReformingDecision::Kind;
  const auto count = [](int value) { return std::to_string(value); };
  const std::string there =
      count(view.ready) + " of " + count(view.wanted) + " workers are there";
  if (view.busy > 0) {
    return {Kind::kWait,
            count(view.busy) + " have not let go of their generation"};
  }
  if (view.ready >= view.wanted) return {Kind::kForm, there};
  if (view.coming > 0 && view.elapsed < options.restart_wait) {
    return {Kind::kWait, there + ", " + count(view.coming) + " are coming"};
  }
  if (view.ready >= std::max(1, view.min_processes)) {
    return {Kind::kForm, there};
  }
  if (view.ready == 0 && view.coming == 0 && !view.has_agent &&
      view.elapsed >= options.agent_wait) {
    return {Kind::kGiveUp, "nobody is left"};
  }
  const std::string needed =
      there + ", --min-processes " + count(view.min_processes) + " are needed";
  if (view.elapsed >= options.join_timeout) return {Kind::kGiveUp, needed};
  return {Kind::kWait, needed};
}

}  // namespace headroom::coordinator
