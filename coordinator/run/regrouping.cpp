#include "coordinator/run/regrouping.h"

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::coordinator {

Leaving leaving_of(const wire::LeftGeneration& left) {
  return {
      .from = {.committed_steps = left.committed_steps,
               .checkpoint = left.checkpoint},
      .shortage = {.step = left.committed_steps,
                   .rank = left.failed_rank,
                   .memory = left.shortfall},
      .result_json = left.result_json,
      .float16_error = left.float16_error,
      .cause = left.was_asked ? LeavingCause::kAsked : LeavingCause::kMemory,
      .state = {.holds_a_part = left.holds_a_part,
                .checkpoint_steps = left.checkpoint_steps}};
}

SurvivorState survivor_state(const wire::WorkerFailure& failure) {
  return {.holds_a_part = failure.holds_a_part,
          .checkpoint_steps = failure.checkpoint_steps,
          .can_go_on = failure.can_go_on,
          .recorded_epochs = failure.recorded_epochs};
}

std::vector<RankedMember> still_to_leave(
    const Regrouping& regrouping, const std::vector<RankedMember>& members,
    const Membership& membership) {
  std::vector<RankedMember> waited_for;
  for (const RankedMember& ranked : members) {
    if (regrouping.left.contains(ranked.worker_id)) continue;
    const Member* member = membership.find(ranked.worker_id);
    if (member != nullptr && member->state == MemberState::kJoined) {
      waited_for.push_back(ranked);
    }
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
    if (own.memory.room_bytes > 0) {
      room = room == 0 ? own.memory.room_bytes
                       : std::min(room, own.memory.room_bytes);
    }
  }
  shortage.memory.room_bytes = room;
  return shortage;
}

ResumePoint newest_state(const Regrouping& regrouping, int64_t known_steps) {
  ResumePoint newest;
  if (regrouping.left.empty()) newest.committed_steps = known_steps;
  for (const auto& [worker_id, leaving] : regrouping.left) {
    if (leaving.from.committed_steps >= newest.committed_steps) {
      newest = leaving.from;
    }
  }
  return newest;
}

std::vector<Member> newest_first(const Regrouping& regrouping,
                                 std::vector<Member> there) {
  const auto steps = [&](const Member& member) -> int64_t {
    const auto left = regrouping.left.find(member.worker_id);
    return left == regrouping.left.end() ? -1
                                         : left->second.from.committed_steps;
  };
  std::stable_sort(
      there.begin(), there.end(),
      [&](const Member& a, const Member& b) { return steps(a) > steps(b); });
  return there;
}

void note_left(RunEnding& ending, Survivor& survivor, const Leaving& leaving) {
  survivor.committed_steps = leaving.from.committed_steps;
  survivor.state = leaving.state;
  if (leaving.cause != LeavingCause::kMemory) return;
  // The state is in a checkpoint: there is nothing more to save.
  survivor.state = {true, leaving.from.committed_steps};
  ending.saved_step = leaving.from.committed_steps;
}

void list_survivors(RunEnding& ending, const std::vector<RankedMember>& members,
                    const Regrouping& regrouping) {
  for (const RankedMember& member : members) {
    if (ending.loss && ending.loss->worker_id == member.worker_id) continue;
    Survivor entry;
    entry.worker_id = member.worker_id;
    entry.rank = member.rank;
    const auto left = regrouping.left.find(member.worker_id);
    if (left != regrouping.left.end()) note_left(ending, entry, left->second);
    ending.survivors.push_back(entry);
  }
}

RegroupingDecision decide_regrouping(const RegroupingView& view,
                                     const RegroupingOptions& options) {
  using Kind = RegroupingDecision::Kind;
  const auto count = [](int value) { return std::to_string(value); };
  const std::string there =
      count(view.ready) + " of " + count(view.wanted) + " workers are there";
  if (view.ready >= view.wanted) return {Kind::kForm, there};
  if (view.coming > 0 && view.elapsed < options.restart_wait) {
    return {Kind::kWait, there + ", " + count(view.coming) +
                             (view.coming == 1 ? " is" : " are") + " coming"};
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
  if (places_.size() != members.size()) {
    places_.clear();
    for (size_t i = 0; i < members.size(); ++i) {
      places_[members[i].worker_id] = i;
    }
  }
  const auto place = places_.find(worker_id);
  return place == places_.end() ? nullptr : &members[place->second];
}

bool can_keep_state(const Generation& previous, const Generation& next,
                    const Regrouping& regrouping) {
  if (previous.plan != next.plan || !next.begin.checkpoint.empty() ||
      previous.members.size() != next.members.size()) {
    return false;
  }
  return std::ranges::all_of(next.members, [&](const RankedMember& member) {
    const RankedMember* const before = previous.find(member.worker_id);
    const auto left = regrouping.left.find(member.worker_id);
    return before != nullptr && before->rank == member.rank &&
           left != regrouping.left.end() && left->second.state.can_go_on &&
           left->second.from.committed_steps == next.begin.committed_steps &&
           left->second.state.recorded_epochs ==
               regrouping.left.begin()->second.state.recorded_epochs;
  });
}

Generation next_generation(const Generation& previous,
                           std::vector<RankedMember> members,
                           const plan::Plan& plan, const ResumePoint& begin,
                           const std::string& reason) {
  HEADROOM_CHECK(
      members.size() == static_cast<size_t>(plan.layout.world_size()),
      cat(members.size(), " members for ", plan::to_string(plan.layout)));
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
    return cat("the message is of generation ", generation,
               ", the run is at generation ", current_generation);
  }
  return std::nullopt;
}

}  // namespace headroom::coordinator
