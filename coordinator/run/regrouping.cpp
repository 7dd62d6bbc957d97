#include "coordinator/run/regrouping.h"

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"

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

const RankedMember* Generation::find(const std::string& worker_id) const {
  for (const RankedMember& member : members) {
    if (member.worker_id == worker_id) return &member;
  }
  return nullptr;
}

Generation next_generation(const Generation& previous,
                           std::vector<RankedMember> members,
                           const plan::Plan& plan, const ResumePoint& begin,
                           const std::string& reason) {
  HEADROOM_CHECK(
      members.size() == static_cast<size_t>(plan.layout.world_size()),
      std::to_string(members.size()) + " members for " +
          plan::to_string(plan.layout));
  Generation next;
  next.number = previous.number + 1;
  next.members = std::move(members);
  next.plan = plan;
  next.begin = begin;
  next.reason = reason;
  return next;
}

std::optional<std::string> stamp_error(uint64_t generation,
                                       const std::string& run_digest,
                                       uint64_t current_generation,
                                       const std::string& current_run_digest,
                                       bool may_wait) {
  if (run_digest != current_run_digest) {
    return "the message is of run " +
           (run_digest.empty() ? "(none)" : run_digest) +
           ", this coordinator serves run " + current_run_digest;
  }
  if (may_wait && generation == 0) return std::nullopt;
  if (generation != current_generation) {
    return "the message is of generation " + std::to_string(generation) +
           ", the run is at generation " + std::to_string(current_generation);
  }
  return std::nullopt;
}

}  // namespace headroom::coordinator
