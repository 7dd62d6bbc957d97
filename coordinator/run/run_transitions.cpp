// What follows from what happened: the edges of RunState's table.
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/run/run_state.h"
#include "parallel/base/check.h"
#include "parallel/base/utf8.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/planner.h"

namespace headroom::coordinator {

void RunState::tick(TimePoint now) {
  // If this very process was stopped (a paused machine, SIGSTOP), or is so busy
  // that it comes late, nobody else is to blame for the silence.
  const auto late = now - last_tick_ - options_.heartbeat_timeout / 8;
  if (late.count() > 0) membership_.excuse(late);
  last_tick_ = now;

  const Expired expired = membership_.expire(now);
  const std::string limit =
      std::to_string(options_.heartbeat_timeout.count()) + " ms";
  for (const std::string& node_id : expired.node_ids) {
    if (over()) break;
    emit("agent_silent", -1,
         "the agent of node " + node_id + " has been silent for " + limit,
         true);
    // Later on it may speak again, and its workers join after all.
    if (phase_ != RunPhase::kWaiting) continue;
    for (const Member& member : std::vector(membership_.members())) {
      if (member.node_id != node_id) continue;
      if (member.state != MemberState::kExpected) continue;
      membership_.leave(member.worker_id);
      Loss loss =
          loss_of(member.worker_id, "has not joined, and its agent is silent");
      loss.explained = true;
      lose(now, std::move(loss));
    }
  }
  for (const std::string& worker_id : expired.worker_ids) {
    given_up_.insert(worker_id);
    Loss loss = loss_of(worker_id, "was silent for " + limit);
    loss.explained = true;
    lose(now, std::move(loss));
  }
  advance(now);
}

void RunState::advance(TimePoint now) {
  if (phase_ == RunPhase::kWaiting) advance_waiting(now);
  if (phase_ == RunPhase::kRunning) advance_running(now);
  if (phase_ == RunPhase::kReforming) advance_reforming(now);
  if (phase_ == RunPhase::kStopping) advance_stopping(now);
}

void RunState::advance_waiting(TimePoint now) {
  if (!waiting_since_) return;
  const QuorumDecision decision = decide_quorum(
      now, *waiting_since_, membership_.members(), options_.quorum);
  reason_ = decision.reason;
  if (!decision.members.empty()) {
    form_first_generation(now, decision);
  } else if (decision.timed_out) {
    end(now, RunPhase::kFailed, static_cast<int>(ExitCode::kResource),
        decision.reason);
  }
}

void RunState::form_first_generation(TimePoint now,
                                     const QuorumDecision& decision) {
  membership_.open();
  if (options_.plan) {
    wanted_plan_ = options_.plan;
    form_generation(*options_.plan, {}, decision.reason);
    return;
  }
  const planner::PlanDecision planned = planner::choose_plan(
      config_, static_cast<int>(decision.members.size()), options_.layers);
  if (!planned.plan) {
    end(now, RunPhase::kFailed, static_cast<int>(planned.exit_code),
        planned.reason + ": " + planned.remedy);
    return;
  }
  wanted_plan_ = planned.plan;
  form_generation(*planned.plan, {}, decision.reason);
}

Loss RunState::loss_of(const std::string& worker_id,
                       const std::string& how) const {
  Loss loss;
  loss.worker_id = worker_id;
  loss.hostname = membership_.find(worker_id)->hostname;
  loss.rank = rank_of(worker_id);
  loss.how = how;
  return loss;
}

void RunState::lose(TimePoint now, Loss loss) {
  if (over()) return;
  const std::string worker_id = loss.worker_id;
  const bool first = !ending_.loss;
  // Who has complained of a peer and then leaves is a victim, not the cause.
  const Survivor* known = survivor(worker_id);
  const bool victim =
      (known != nullptr && known->committed_steps && known->can_save) ||
      (phase_ == RunPhase::kReforming && reforming_.left.contains(worker_id));
  emit("loss_of_process", loss.rank,
       "worker " + worker_id + " on " + loss.hostname + " " + loss.how, true);
  if (can_reform()) {
    if (loss.rank < 0) return;  // it waited to take part
    if (phase_ == RunPhase::kRunning) begin_reforming(now);
    reforming_.has_loss = true;
    reforming_.left.erase(worker_id);
  } else if (phase_ != RunPhase::kStopping) {
    begin_stopping(now);
  }
  if (!first || victim) return;
  loss.time = now;
  ending_.loss = std::move(loss);
  std::erase_if(ending_.survivors, [&](const Survivor& entry) {
    return entry.worker_id == worker_id;
  });
}

void RunState::begin_stopping(TimePoint now) {
  const bool reformed = phase_ == RunPhase::kReforming;
  phase_ = RunPhase::kStopping;
  ending_.begin = now;
  ending_.known_steps = progress_.step;
  for (const RankedMember& member : generation_.members) {
    if (ending_.loss && ending_.loss->worker_id == member.worker_id) continue;
    Survivor entry;
    entry.worker_id = member.worker_id;
    entry.rank = member.rank;
    if (reformed) {
      const auto left = reforming_.left.find(member.worker_id);
      if (left != reforming_.left.end()) note_left(entry, left->second);
    }
    ending_.survivors.push_back(entry);
  }
}

void RunState::advance_stopping(TimePoint now) {
  for (Survivor& entry : ending_.survivors) {
    const Member* member = membership_.find(entry.worker_id);
    entry.gone = member == nullptr || member->state == MemberState::kGone;
  }
  const Member* lost = ending_.loss ? membership_.find(ending_.loss->worker_id)
                                    : nullptr;  // none: it was succeeded
  if (lost != nullptr) {
    ending_.loss->agent_silent = membership_.find_node(lost->node_id)->silent;
  }
  if (!ending_.saver.empty() && !ending_.saved_step) {
    Survivor* saver = survivor(ending_.saver);
    if (saver->gone || !saver->can_save ||
        saver_overdue(now, ending_, options_.ending)) {
      saver->can_save = false;
      emit("checkpoint", saver->rank,
           "worker " + saver->worker_id + " could not save the state", true);
      ending_.saver.clear();
    }
  }
  const EndingDecision decision = decide_ending(now, ending_, options_.ending);
  switch (decision.kind) {
    case EndingDecision::Kind::kWait:
      reason_ = decision.reason;
      break;
    case EndingDecision::Kind::kSave:
      reason_ = decision.reason;
      ending_.saver = decision.worker_id;
      ending_.saver_since = now;
      order(Order::Kind::kSaveAndExit, decision.worker_id, decision.reason);
      break;
    case EndingDecision::Kind::kOver:
      settle(now);
      break;
  }
}

void RunState::settle(TimePoint now) {
  int exit_code = static_cast<int>(ExitCode::kResource);
  const bool nothing_done = !ending_.saved_step && ending_.known_steps == 0;
  if (nothing_done && ending_.loss && ending_.loss->exit_code) {
    // A worker that could not even start says by its exit code why.
    const int code = *ending_.loss->exit_code;
    if (code == static_cast<int>(ExitCode::kRequest) ||
        code == static_cast<int>(ExitCode::kNoPlan) ||
        code == static_cast<int>(ExitCode::kData)) {
      exit_code = code;
    }
  }
  end(now, RunPhase::kFailed, exit_code,
      describe_ending(ending_, options_.run_directory));
}

void RunState::end(TimePoint now, RunPhase phase, int exit_code,
                   const std::string& reason) {
  phase_ = phase;
  exit_code_ = exit_code;
  reason_ = valid_utf8(reason);
  over_since_ = now;
  for (const Member& member : membership_.members()) {
    if (member.state != MemberState::kJoined) continue;
    if (released_.contains(member.worker_id)) continue;  // knows already
    order(Order::Kind::kExit, member.worker_id, reason_);
  }
  nlohmann::ordered_json detail;
  detail["exit_code"] = exit_code;
  detail["state"] = to_string(phase);
  emit(wire::kRunOverEvent, -1, reason_, phase == RunPhase::kFailed,
       detail.dump());
}

void RunState::order(Order::Kind kind, const std::string& worker_id,
                     const std::string& reason) {
  Order entry;
  entry.kind = kind;
  entry.worker_id = worker_id;
  entry.reason = reason;
  orders_.push_back(std::move(entry));
}

void RunState::emit(const std::string& event, int rank,
                    const std::string& reason, bool warning,
                    const std::string& detail_json) {
  wire::EventRecord record;
  record.event = event;
  record.step = progress_.step;
  record.rank = rank;
  record.reason = valid_utf8(reason);
  record.warning = warning;
  record.detail_json = detail_json;
  events_.push_back(std::move(record));
}

int RunState::rank_of(const std::string& worker_id) const {
  const RankedMember* member = generation_.find(worker_id);
  return member == nullptr ? -1 : member->rank;
}

Survivor* RunState::survivor(const std::string& worker_id) {
  for (Survivor& entry : ending_.survivors) {
    if (entry.worker_id == worker_id) return &entry;
  }
  return nullptr;
}

}  // namespace headroom::coordinator
