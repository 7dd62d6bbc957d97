// From one generation to the next: RunState's edges into and out of
// `regrouping`.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/run/run_state.h"
#include "parallel/base/check.h"
#include "parallel/base/utf8.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/replan.h"

namespace headroom::coordinator {

// MPI ends a job with any of its processes.
bool RunState::can_reform() const {
  return (phase_ == RunPhase::kRunning || phase_ == RunPhase::kReforming) &&
         generation_.plan.backend != plan::Backend::kMpi;
}

void RunState::begin_reforming(TimePoint now) {
  phase_ = RunPhase::kReforming;
  reforming_ = {};
  reforming_.begin = now;
}

std::vector<Member> RunState::available() const {
  std::vector<Member> members;
  for (const Member& member : membership_.members()) {
    if (member.state != MemberState::kJoined) continue;
    if (draining_nodes_.contains(member.node_id)) continue;
    if (released_.contains(member.worker_id)) continue;
    members.push_back(member);
  }
  return members;
}

ReformingView RunState::reforming_view(TimePoint since, TimePoint now) const {
  ReformingView view;
  view.elapsed =
      std::chrono::duration_cast<std::chrono::milliseconds>(now - since);
  view.wanted = wanted_plan_->layout.world_size();
  // Who is asked to stop at the next step takes that step with whoever is left.
  view.min_processes =
      stop_requested_ ? 1 : static_cast<int>(config_.min_processes);
  view.ready = static_cast<int>(available().size());
  for (const RankedMember& ranked : generation_.members) {
    if (reforming_.left.contains(ranked.worker_id)) continue;
    const Member* member = membership_.find(ranked.worker_id);
    if (member != nullptr && member->state == MemberState::kJoined) ++view.busy;
  }
  view.has_agent = false;
  for (const Node& node : membership_.nodes()) {
    if (node.silent || draining_nodes_.contains(node.node_id)) continue;
    view.has_agent = true;
    for (const std::string& worker_id : node.worker_ids) {
      const Member& member = *membership_.find(worker_id);
      if (member.state == MemberState::kExpected ||
          (member.state == MemberState::kGone &&
           !not_coming_.contains(worker_id))) {
        ++view.coming;
      }
    }
  }
  return view;
}

// More workers than take part, or some that are to leave: the generation ends
// at the next committed step. Newcomers that are on their way are waited for a
// little.
void RunState::advance_running(TimePoint now) {
  release_drained();
  if (leave_requested_ || stop_requested_ || !can_reform()) return;
  const std::vector<Member> there = available();
  for (const RankedMember& ranked : generation_.members) {
    const Member* member = membership_.find(ranked.worker_id);
    if (member == nullptr || !draining_nodes_.contains(member->node_id)) {
      continue;
    }
    leave_requested_ = true;
    return;
  }
  const int count = static_cast<int>(there.size());
  if (count <= generation_.plan.layout.world_size()) {
    newcomers_since_.reset();
    considered_workers_ = 0;
    return;
  }
  if (!newcomers_since_) newcomers_since_ = now;
  const ReformingView view = reforming_view(*newcomers_since_, now);
  if (view.coming > 0 && view.elapsed < options_.regrouping.restart_wait) {
    return;
  }
  if (count == considered_workers_) return;  // planning takes its time
  considered_workers_ = count;
  const planner::ElasticPlan next =
      planner::plan_for_workers(config_, *wanted_plan_, count, options_.layers);
  if (!next.plan ||
      next.plan->layout.world_size() <= generation_.plan.layout.world_size()) {
    return;
  }
  leave_requested_ = true;
  emit("rescale", -1,
       std::to_string(count) +
           " workers are there: the next committed step ends generation " +
           std::to_string(generation_.number));
}

void RunState::advance_reforming(TimePoint now) {
  const ReformingView view = reforming_view(reforming_.begin, now);
  if (view.busy > 0) {
    const auto members = static_cast<int>(generation_.members.size());
    reason_ = std::to_string(members - view.busy) + " of " +
              std::to_string(members) + " workers have left generation " +
              std::to_string(generation_.number);
    if (now - reforming_.begin >= options_.ending.report_timeout) {
      give_up_busy(now);
    }
    return;
  }
  if (!reforming_.has_loss && !reforming_.is_asked) {
    replan(now);
    return;
  }
  const ReformingDecision decision =
      decide_reforming(view, options_.regrouping);
  reason_ = decision.reason;
  if (decision.kind == ReformingDecision::Kind::kForm) {
    reform(now, decision.reason);
  } else if (decision.kind == ReformingDecision::Kind::kGiveUp) {
    begin_stopping(now);
  }
}

// A hung worker speaks, but does not leave.
void RunState::give_up_busy(TimePoint now) {
  std::string worker_id;
  for (const RankedMember& ranked :
       still_to_leave(reforming_, generation_.members)) {
    const Member* member = membership_.find(ranked.worker_id);
    const bool lives =
        member != nullptr && member->state == MemberState::kJoined;
    if (lives && worker_id.empty()) worker_id = ranked.worker_id;
  }
  given_up_.insert(worker_id);
  membership_.leave(worker_id);
  Loss loss = loss_of(worker_id, "did not leave its generation");
  loss.explained = true;
  lose(now, std::move(loss));
}

// After a loss, or because members come or go.
void RunState::reform(TimePoint now, const std::string& there) {
  if (available().empty()) {  // all are to leave
    begin_stopping(now);
    return;
  }
  const planner::ElasticPlan next = planner::plan_for_workers(
      config_, *wanted_plan_, static_cast<int>(available().size()),
      options_.layers);
  if (!next.plan) {
    reason_ = there + ", and there is no plan for them: " + next.reason;
    if (now - reforming_.begin >= options_.regrouping.join_timeout) {
      begin_stopping(now);
    }
    return;
  }
  // The newest that any of them has. Where all are lost, what is known to have
  // been committed: the workers look for a checkpoint.
  ResumePoint from;
  if (reforming_.left.empty()) from.committed_steps = progress_.step;
  for (const auto& [worker_id, leaving] : reforming_.left) {
    if (leaving.from.committed_steps >= from.committed_steps) {
      from = leaving.from;
    }
  }
  std::string reason;
  if (ending_.loss) {
    const Loss& loss = *ending_.loss;
    reason = "rank " + std::to_string(loss.rank) + " on " + loss.hostname +
             " " +
             (loss.exit_code && !loss.explained ? describe_exit(*loss.exit_code)
                                                : loss.how) +
             "; ";
  } else if (!ending_.first_complaint.empty()) {
    reason = "the workers lost each other; ";
  }
  form_generation(*next.plan, from, reason + there);
}

void RunState::replan(TimePoint now) {
  const ResumePoint from =
      reforming_.left.at(generation_.members[0].worker_id).from;
  const std::string resume =
      "headroom train --resume " + shell_word(options_.run_directory);
  const std::string saved = "; the state after " +
                            count_steps(from.committed_steps) +
                            " is saved, continue with: " + resume;
  if (stop_requested_) {
    end(now, RunPhase::kFinished, static_cast<int>(ExitCode::kInterrupted),
        "interrupted between two generations" + saved);
    return;
  }
  const planner::MemoryShortage shortage =
      shortage_of(reforming_, generation_.members);
  const planner::Replan next = planner::plan_after_shortage(
      config_, generation_.plan, shortage, options_.layers);
  if (!next.plan) {
    end(now, RunPhase::kFailed, static_cast<int>(ExitCode::kResource),
        planner::describe(shortage) + "; " + next.reason + saved +
            (next.resume_flags.empty() ? "" : " " + next.resume_flags));
    return;
  }
  // What fewer workers need says nothing of what all of them do.
  if (next.plan->layout.world_size() == wanted_plan_->layout.world_size()) {
    wanted_plan_ = next.plan;
  }
  form_generation(*next.plan, from, planner::describe(shortage));
}

void RunState::form_generation(const plan::Plan& plan, const ResumePoint& begin,
                               const std::string& reason) {
  std::vector<Member> members = available();
  // Those who have the newest state first, then those who have any.
  const auto newest = [this](const Member& member) -> int64_t {
    const auto left = reforming_.left.find(member.worker_id);
    if (left == reforming_.left.end()) return -1;
    return left->second.from.committed_steps;
  };
  std::stable_sort(
      members.begin(), members.end(),
      [&](const Member& a, const Member& b) { return newest(a) > newest(b); });
  members.resize(
      std::min(members.size(), static_cast<size_t>(plan.layout.world_size())));
  generation_ = next_generation(generation_, assign_ranks(std::move(members)),
                                plan, begin, reason);
  phase_ = RunPhase::kRunning;
  reason_ = reason;
  reforming_ = {};
  ending_ = {};
  leave_requested_ = false;
  considered_workers_ = 0;
  newcomers_since_.reset();

  nlohmann::ordered_json detail;
  detail["generation"] = generation_.number;
  detail["world_size"] = generation_.members.size();
  if (!begin.checkpoint.empty()) {
    detail["checkpoint"] = valid_utf8(begin.checkpoint);
  }
  for (const RankedMember& member : generation_.members) {
    detail["workers"].push_back(
        {{"rank", member.rank},
         {"worker_id", member.worker_id},
         {"hostname",
          valid_utf8(membership_.find(member.worker_id)->hostname)}});
  }
  emit("generation", -1,
       "generation " + std::to_string(generation_.number) + ": " + reason,
       false, detail.dump());
  emit("plan", -1, generation_.plan.reason, false,
       "{\"plan\":" + plan::plan_to_compact_json(generation_.plan) + "}");
  for (const RankedMember& member : generation_.members) {
    order(Order::Kind::kRun, member.worker_id, reason);
  }
  release_drained();
}

// Workers of nodes that are to leave, once no generation needs them: also one
// that was still starting when its node was asked to.
void RunState::release_drained() {
  for (const Member& member : membership_.members()) {
    if (member.state != MemberState::kJoined ||
        !draining_nodes_.contains(member.node_id) ||
        generation_.find(member.worker_id) != nullptr ||
        !released_.insert(member.worker_id).second) {
      continue;
    }
    order(Order::Kind::kExit, member.worker_id, "its node leaves the run");
  }
}

}  // namespace headroom::coordinator
