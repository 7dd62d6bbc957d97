#include "coordinator/run/run_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/planner.h"

namespace headroom::coordinator {

RunState::RunState(const RunOptions& options, const configs::RunConfig& config,
                   TimePoint now)
    : options_(options),
      config_(config),
      membership_(options.quorum.expected_workers, options.silence),
      reason_("no agent has registered yet"),
      cycle_(options_, config_, membership_, ending_),
      last_tick_(now) {
  folder_.run_id = options_.run_id;
}

std::optional<std::string> RunState::register_node(TimePoint now, Node node) {
  const bool is_new = membership_.find_node(node.node_id) == nullptr;
  if (auto why = place_on_cards(now, node)) return why;
  if (auto why = membership_.register_node(now, node)) return why;
  if (!waiting_since_) waiting_since_ = now;
  if (is_new && generation().number > 0) {
    emit(EventKind::kAgentJoins, -1,
         "the agent of node " + node.node_id + " has come, with " +
             counted(std::ssize(node.worker_ids), "worker"));
  }
  const auto is_forgotten = [this](const std::string& worker_id) {
    return membership_.find(worker_id) == nullptr;
  };
  std::erase_if(given_up_, is_forgotten);
  std::erase_if(restarts_,
                [&](const auto& entry) { return is_forgotten(entry.first); });
  advance(now);
  return std::nullopt;
}

std::optional<std::string> RunState::join(TimePoint now,
                                          const std::string& worker_id,
                                          const std::string& node_id) {
  if (auto why = membership_.join(now, worker_id, node_id)) return why;
  emit(EventKind::kJoin, -1,
       "worker " + worker_id + " on " + membership_.find(worker_id)->hostname +
           " has joined");
  if (over()) orders_.push_back({Order::Kind::kExit, worker_id, reason_});
  advance(now);
  return std::nullopt;
}

bool RunState::worker_heartbeat(
    TimePoint now, const std::string& worker_id,
    const std::optional<wire::RunProgress>& progress,
    std::optional<std::chrono::milliseconds> age) {
  if (!membership_.heartbeat_worker(now, worker_id, age)) return false;
  if (progress) {
    measured_peak_bytes_[worker_id] = progress->measured_peak_bytes;
    // Heartbeats and commits may arrive out of order: never go back.
    if (cycle_.rank_of(worker_id) == 0 && progress->step >= progress_.step) {
      progress_ = *progress;
    }
    lose_if_stuck(now, worker_id, *progress);
  }
  return true;
}

// Gives up a stuck worker, because its peers wait until its process ends. Also
// applies to a worker that does not leave after another member was lost.
void RunState::lose_if_stuck(TimePoint now, const std::string& worker_id,
                             const wire::RunProgress& progress) {
  if (!can_regroup() && phase_ != RunPhase::kRunning) return;
  if (cycle_.rank_of(worker_id) < 0) return;
  if (cycle_.regrouping().left.contains(worker_id)) return;
  const auto overload = overload_text(progress);
  if (overload && said_slow_.insert(worker_id).second) {
    const int rank = cycle_.rank_of(worker_id);
    emit(EventKind::kOverload, rank,
         cat("rank ", rank, " on ", membership_.find(worker_id)->hostname, " ",
             *overload),
         true);
  }
  const auto why = stall_error(progress);
  if (!why) return;
  give_up(now, worker_id, *why);
  advance(now);
}

void RunState::give_up(TimePoint now, const std::string& worker_id,
                       const std::string& how) {
  given_up_.insert(worker_id);
  membership_.leave(worker_id);
  lose(now, loss_of(worker_id, how, /*explained=*/true));
}

NodeAnswer RunState::node_heartbeat(TimePoint now, const std::string& node_id) {
  NodeAnswer answer;
  answer.known = membership_.heartbeat_node(now, node_id);
  if (!answer.known) return answer;
  if (over()) told_nodes_.insert(node_id);
  for (const std::string& worker_id : given_up_) {
    if (membership_.find(worker_id)->node_id == node_id) {
      answer.lost_worker_ids.push_back(worker_id);
    }
  }
  return answer;
}

void RunState::worker_disconnected(TimePoint now,
                                   const std::string& worker_id) {
  // After a pause, workers close streams that did not answer and reopen them;
  // heartbeats show which workers are alive.
  if (is_readopting(now) && !over()) return;
  const Member* member = membership_.find(worker_id);
  if (member == nullptr || !membership_.leave(worker_id)) return;
  if (membership_.is_released(worker_id)) return advance(now);
  // Once the run is over, workers leave at their own pace, since MPI takes time
  // to finalise. The agent ends workers that take too long.
  if (!over()) given_up_.insert(worker_id);
  lose(now, loss_of(worker_id, "closed its connection"));
  advance(now);
}

RestartDecision RunState::worker_exited(TimePoint now,
                                        const std::string& worker_id,
                                        int exit_code,
                                        const std::string& last_words,
                                        const std::string& host_memory) {
  const Member* member = membership_.find(worker_id);
  if (member == nullptr) return {.reason = "it takes no part in this run"};
  given_up_.erase(worker_id);
  if (const auto known = restarts_.find(worker_id); known != restarts_.end()) {
    return known->second;
  }
  const bool was_released = membership_.is_released(worker_id) || over();
  const bool may_return = !was_released && may_have_successor();
  Loss loss = loss_of(worker_id, describe_exit(exit_code));
  loss.exit_code = exit_code;
  loss.last_words = last_words;
  if (!host_memory.empty()) explain_by_host_memory(loss, host_memory);
  RestartDecision decision;
  if (may_return) {
    const bool is_draining = membership_.is_draining(member->node_id);
    // No restart budget is needed: this succeeds only a few times in a run.
    if (!host_memory.empty() && !is_draining && take_less_host_memory(loss)) {
      decision = {.restart = true,
                  .reason = "started again, with less of the host's memory"};
    } else {
      decision =
          restart_budgets_[{member->node_id, member->local_slot}].note_end(
              exit_code, num_commits_, is_draining);
    }
    const auto left_out =
        cards_.no_successor(member->node_id, member->local_slot);
    if (left_out) decision = {.reason = *left_out};
  }
  if (!decision.restart) membership_.expect_no_successor(worker_id);
  if (ending_.loss && ending_.loss->worker_id == worker_id) {
    if (!host_memory.empty()) {
      explain_by_host_memory(*ending_.loss, host_memory);
    }
    ending_.loss->exit_code = exit_code;
    ending_.loss->last_words = last_words;
  }
  if (membership_.leave(worker_id) && !was_released) lose(now, loss);
  if (may_return) {
    emit(EventKind::kRestart, loss.rank,
         "worker " + worker_id + ": " + decision.reason, !decision.restart);
  }
  if (may_return && !decision.restart &&
      (decision.is_crash_loop || phase_ == RunPhase::kWaiting)) {
    if (phase_ != RunPhase::kStopping) begin_stopping(now);
    loss.time = now;
    loss.explained |= decision.is_crash_loop;
    if (decision.is_crash_loop)
      loss.how += ", for the fifth time without a step between";
    ending_.loss = std::move(loss);
  }
  advance(now);
  if (phase_ == RunPhase::kStopping || over()) decision.restart = false;
  restarts_[worker_id] = decision;
  return decision;
}

void RunState::worker_failed(TimePoint now, const std::string& worker_id,
                             const wire::WorkerFailure& failure) {
  if (membership_.find(worker_id) == nullptr || over()) return;
  membership_.heartbeat_worker(now, worker_id);
  const bool could_be_the_cause =
      !ending_.loss || ending_.loss->worker_id == worker_id;
  const bool is_fatal = failure.kind == wire::FailureKind::kFatal;
  if (is_fatal && ends_every_worker(failure.exit_code) && could_be_the_cause) {
    emit(EventKind::kFault, cycle_.rank_of(worker_id), failure.message, true);
    events_.back().ends_run = true;
    end(now, failure.exit_code, {failure.message});
    return;
  }
  if (!is_fatal && cycle_.rank_of(worker_id) >= 0) {
    if (phase_ == RunPhase::kRunning) {
      can_regroup() ? begin_regrouping(now) : begin_stopping(now);
    }
    if (phase_ == RunPhase::kRegrouping) {
      cycle_.note_failure(worker_id, failure);
    }
  }
  if (ending_.first_complaint.empty()) {
    ending_.first_complaint = failure.message;
  }
  if (is_fatal) {
    // Before the first generation every other worker would fail in this way.
    if (phase_ == RunPhase::kWaiting) begin_stopping(now);
    lose(now,
         loss_of(worker_id, "stopped: " + failure.message, /*explained=*/true));
    if (!over() && phase_ != RunPhase::kStopping) begin_stopping(now);
  }
  if (Survivor* entry = ending_.find(worker_id)) {
    entry->committed_steps = failure.committed_steps;
    entry->state = survivor_state(failure);
    if (is_fatal) entry->can_save = false;
  }
  advance(now);
}

std::optional<std::string> RunState::generation_left(
    TimePoint now, const std::string& worker_id, const Leaving& leaving) {
  if (over()) return std::nullopt;
  if (cycle_.rank_of(worker_id) < 0) {
    return cat("worker ", worker_id, " is no member of generation ",
               generation().number);
  }
  membership_.heartbeat_worker(now, worker_id);
  progress_.step = std::max(progress_.step, leaving.from.committed_steps);
  if (cycle_.rank_of(worker_id) == 0) result_json_ = leaving.result_json;
  if (!leaving.float16_error.empty() && config_.checks_float16) {
    take_float32(now, leaving.float16_error);
    if (over()) return std::nullopt;
  }
  if (phase_ == RunPhase::kRunning) begin_regrouping(now);
  if (phase_ == RunPhase::kRegrouping) {
    cycle_.note_left(worker_id, leaving);
  } else if (Survivor* entry = ending_.find(worker_id)) {
    note_left(ending_, *entry, leaving);
  }
  advance(now);
  return std::nullopt;
}

void RunState::committed(int64_t step,
                         const std::optional<wire::RunProgress>& progress) {
  ++num_commits_;
  if (progress && progress->step >= progress_.step) progress_ = *progress;
  progress_.step = std::max(progress_.step, step);
  ending_.known_steps = progress_.step;
}

void RunState::note_writer(const std::string& worker_id) {
  const Member* member = membership_.find(worker_id);
  if (member == nullptr) return;
  folder_.hostname = member->hostname;
  folder_.node_id = member->node_id;
}

FolderPlace RunState::folder() const {
  FolderPlace place = folder_;
  place.steps = progress_.step;
  return place;
}

std::optional<std::string> RunState::finish(TimePoint now,
                                            const std::string& worker_id,
                                            const wire::FinishedRun& finished) {
  if (over()) return std::nullopt;  // a repeated call whose reply was lost
  if (phase_ == RunPhase::kStopping && worker_id == ending_.saver) {
    ending_.saved_step = finished.step;
    progress_.step = std::max(progress_.step, finished.step);
    note_writer(worker_id);
    advance(now);
    return std::nullopt;
  }
  const int rank = cycle_.rank_of(worker_id);
  if (rank != 0) {
    return cat(
        "only rank 0 ends a run, or the worker that was told to save; "
        "worker ",
        worker_id, " is rank ", rank);
  }
  progress_.step = std::max(progress_.step, finished.step);
  if (finished.step > 0) note_writer(worker_id);
  result_json_ = finished.result_json;
  end(now, finished.exit_code,
      {finished.reason.empty()
           ? "finished after " + counted(finished.step, "step")
           : finished.reason,
       finished.says_how_to_go_on});
  return std::nullopt;
}

void RunState::drain(TimePoint now, const std::string& reason) {
  if (phase_ == RunPhase::kWaiting) {
    end(now, static_cast<int>(ExitCode::kInterrupted),
        {"interrupted before the run began: " + reason});
  } else if ((phase_ == RunPhase::kRunning ||
              phase_ == RunPhase::kRegrouping) &&
             !stop_requested_) {
    stop_requested_ = true;
    emit(EventKind::kDrain, -1,
         "the run ends at the next committed step: " + reason);
  }
}

void RunState::drain_node(TimePoint now, const std::string& node_id,
                          const std::string& reason) {
  if (over() || membership_.find_node(node_id) == nullptr) return;
  if (!membership_.drain_node(node_id)) return;
  if (phase_ == RunPhase::kWaiting || membership_.available().empty()) {
    drain(now, reason);
    return;
  }
  emit(EventKind::kDrain, -1,
       "the workers of node " + node_id +
           " leave at the next committed step: " + reason);
  advance(now);
}

void RunState::stop(TimePoint now, const std::string& reason) {
  if (over()) return;
  end(now, static_cast<int>(ExitCode::kInterrupted),
      {"the coordinator was stopped: " + reason});
}

bool RunState::everybody_told(TimePoint now, bool followers_left) const {
  if (!over()) return false;
  if (now - over_since_ >= kFarewell) return true;
  if (!followers_left) return false;
  for (const Member& member : membership_.members()) {
    if (member.state == MemberState::kJoined) return false;
  }
  for (const Node& node : membership_.nodes()) {
    if (!node.silent && !told_nodes_.contains(node.node_id)) return false;
  }
  return true;
}

// --- reactions to the events ------------------------------------------------

void RunState::note_pause(TimePoint now) {
  const auto pause = now - last_tick_;
  if (pause <= options_.silence.process) return;
  last_tick_ = now;
  readopting_until_ = now + kReadoption;
  membership_.expect_until(readopting_until_);
  cycle_.excuse(pause);
  ending_.begin += pause;
  ending_.saver_since += pause;
  if (over()) return;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(pause).count();
  emit(EventKind::kCoordinatorPause, -1,
       "the coordinator's process stood still for " +
           counted(seconds, "second") + ": nobody is lost for not being heard",
       true);
}

void RunState::tick(TimePoint now) {
  note_pause(now);
  // Extend every process's limit by the delay of a late tick.
  const auto late = now - last_tick_ - options_.silence.process / 8;
  if (late.count() > 0) membership_.excuse(late);
  last_tick_ = now;

  const Expired expired = membership_.expire(now);
  for (const auto& [node_id, how_long] : expired.nodes) {
    if (over()) break;
    emit(EventKind::kAgentSilent, -1,
         "the agent of node " + node_id + " has been silent " + how_long, true);
    // Once the run has begun, the node's workers keep their slots and may still
    // join.
    if (phase_ != RunPhase::kWaiting) continue;
    for (const std::string& worker_id : membership_.leave_absent(node_id)) {
      lose(now, loss_of(worker_id, "has not joined, and its agent is silent",
                        /*explained=*/true));
    }
  }
  for (const auto& [worker_id, how_long] : expired.workers) {
    give_up(now, worker_id, "was silent " + how_long);
  }
  advance(now);
}

void RunState::advance(TimePoint now) {
  if (phase_ == RunPhase::kWaiting) advance_waiting(now);
  if (phase_ == RunPhase::kRunning) advance_running(now);
  if (phase_ == RunPhase::kRegrouping) advance_regrouping(now);
  if (phase_ == RunPhase::kStopping) advance_stopping(now);
}

void RunState::advance_waiting(TimePoint now) {
  if (!waiting_since_) return;
  const QuorumDecision decision = decide_quorum(
      now, *waiting_since_, membership_.members(), options_.quorum);
  reason_ = decision.reason;
  if (!decision.members.empty()) {
    form_first_generation(now, static_cast<int>(decision.members.size()),
                          decision.reason);
  } else if (decision.timed_out) {
    end(now, static_cast<int>(ExitCode::kResource), {decision.reason});
  }
}

void RunState::form_first_generation(TimePoint now, int workers,
                                     const std::string& reason) {
  if (!settle_devices(now)) return;
  membership_.open();
  std::optional<plan::Plan> plan = options_.plan;
  if (!plan) {
    const planner::PlanDecision planned =
        planner::plan_or_remedy(config_, workers, cycle_.model());
    if (!planned.plan) {
      end(now, static_cast<int>(planned.exit_code),
          {planned.reason + ": " + planned.remedy});
      return;
    }
    plan = planned.plan;
  }
  cycle_.want(*plan);
  form_generation(now, *plan, {}, reason);
}

void RunState::form_generation(TimePoint now, const plan::Plan& plan,
                               const ResumePoint& begin,
                               const std::string& reason) {
  cycle_.form(now, plan, begin, reason);
  phase_ = RunPhase::kRunning;
  reason_ = reason;
  ending_ = {};
  slow_ranks_.clear();
  emit(EventKind::kGeneration, -1,
       cat("generation ", generation().number, ": ", reason), false,
       cycle_.detail_json());
  emit(EventKind::kPlan, -1, plan.reason, false,
       "{\"plan\":" + plan::plan_to_compact_json(plan) + "}");
  for (const RankedMember& member : generation().members) {
    orders_.push_back({Order::Kind::kRun, member.worker_id, reason});
  }
  release_drained();
}

// Orders workers of leaving nodes to exit once no generation needs them. This
// includes workers that were still starting when their node was drained.
void RunState::release_drained() {
  if (membership_.leavers().draining_nodes.empty()) return;
  for (const Member& member : membership_.members()) {
    if (member.state != MemberState::kJoined ||
        !membership_.is_draining(member.node_id) ||
        generation().find(member.worker_id) != nullptr ||
        !membership_.release(member.worker_id)) {
      continue;
    }
    orders_.push_back(
        {Order::Kind::kExit, member.worker_id, "its node leaves the run"});
  }
}

void RunState::advance_running(TimePoint now) {
  for (const std::string& worker_id : cycle_.absent(now)) {
    if (phase_ != RunPhase::kRunning) return;
    give_up(
        now, worker_id,
        cat("did not come to the rendezvous of generation ",
            generation().number, " within ", kArrival.count() / 1000, " s"));
  }
  if (phase_ != RunPhase::kRunning) return;
  release_drained();
  if (stop_requested_ || !can_regroup()) return;
  const std::optional<std::string> rescale = cycle_.ask_to_end(now);
  if (rescale && !rescale->empty()) emit(EventKind::kRescale, -1, *rescale);
}

// An MPI job ends when any of its processes ends, so it cannot be regrouped.
bool RunState::can_regroup() const {
  return (phase_ == RunPhase::kRunning || phase_ == RunPhase::kRegrouping) &&
         generation().plan.backend != plan::Backend::kMpi;
}

bool RunState::may_have_successor() const {
  return can_regroup() || (phase_ == RunPhase::kWaiting &&
                           planner::backend_of(config_) != plan::Backend::kMpi);
}

void RunState::begin_regrouping(TimePoint now) {
  phase_ = RunPhase::kRegrouping;
  cycle_.begin_regrouping(now);
}

void RunState::advance_regrouping(TimePoint now) {
  if (end_without_cards(now)) return;
  const CycleDecision next =
      cycle_.decide(now, stop_requested_, progress_.step);
  reason_ = next.reason + cards_.left_out_text();
  switch (next.kind) {
    case CycleDecision::Kind::kWait:
      break;
    case CycleDecision::Kind::kLose:
      give_up(now, next.worker_id, "did not leave its generation");
      break;
    case CycleDecision::Kind::kForm:
      form_generation(now, *next.plan, next.begin, next.reason);
      break;
    case CycleDecision::Kind::kStop:
      if (next.is_fruitless) ending_.gave_up = next.reason;
      begin_stopping(now);
      break;
    case CycleDecision::Kind::kEnd:
      end(now, static_cast<int>(next.exit_code),
          {next.reason, next.says_how_to_go_on});
      break;
  }
}

Loss RunState::loss_of(const std::string& worker_id, const std::string& how,
                       bool explained) const {
  Loss loss;
  loss.worker_id = worker_id;
  loss.hostname = membership_.find(worker_id)->hostname;
  loss.rank = cycle_.rank_of(worker_id);
  loss.how = how;
  loss.explained = explained;
  return loss;
}

void RunState::lose(TimePoint now, Loss loss) {
  if (over()) return;
  const std::string worker_id = loss.worker_id;
  const bool first = !ending_.loss;
  // A worker that first reported the failure of a peer did not cause the loss.
  const Survivor* known = ending_.find(worker_id);
  const bool victim =
      (known != nullptr && known->committed_steps && known->can_save) ||
      (phase_ == RunPhase::kRegrouping &&
       cycle_.regrouping().left.contains(worker_id));
  emit(EventKind::kLossOfProcess, loss.rank,
       "worker " + worker_id + " on " + loss.hostname + " " + loss.how, true);
  if (may_have_successor()) {
    // The worker is outside the generation: only wait for another worker.
    if (loss.rank < 0) return;
    if (phase_ == RunPhase::kRunning) begin_regrouping(now);
    cycle_.note_loss(worker_id);
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
  phase_ = RunPhase::kStopping;
  ending_.begin = now;
  ending_.known_steps = progress_.step;
  list_survivors(ending_, generation().members, cycle_.regrouping());
}

void RunState::advance_stopping(TimePoint now) {
  note_who_is_gone(ending_, membership_);
  if (const auto saver = give_up_saver(now, ending_, options_.ending)) {
    emit(EventKind::kCheckpoint, saver->rank,
         "worker " + saver->worker_id + " could not save the state", true);
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
      orders_.push_back(
          {Order::Kind::kSaveAndExit, decision.worker_id, decision.reason});
      break;
    case EndingDecision::Kind::kOver:
      end(now, static_cast<int>(exit_code_of(ending_)),
          describe_ending(ending_, options_.run_directory));
      break;
  }
}

void RunState::end(TimePoint now, int exit_code, const EndReason& reason) {
  const bool is_as_asked =
      exit_code == static_cast<int>(ExitCode::kDone) ||
      exit_code == static_cast<int>(ExitCode::kInterrupted);
  phase_ = is_as_asked ? RunPhase::kFinished : RunPhase::kFailed;
  exit_code_ = exit_code;
  reason_ = valid_utf8(reason.text);
  says_how_to_go_on_ = reason.says_how_to_go_on;
  over_since_ = now;
  for (const Member& member : membership_.members()) {
    if (member.state != MemberState::kJoined) continue;
    // A released worker already has the order to exit.
    if (membership_.is_released(member.worker_id)) continue;
    orders_.push_back({Order::Kind::kExit, member.worker_id, reason_});
  }
  nlohmann::ordered_json detail;
  detail["exit_code"] = exit_code;
  detail["state"] = to_string(phase_);
  emit(EventKind::kRunOver, -1, reason_, phase_ == RunPhase::kFailed,
       detail.dump());
}

void RunState::emit(EventKind event, int rank, const std::string& reason,
                    bool warning, const std::string& detail_json) {
  events_.push_back({.event = event,
                     .step = progress_.step,
                     .rank = rank,
                     .reason = valid_utf8(reason),
                     .detail_json = detail_json,
                     .warning = warning});
}

}  // namespace headroom::coordinator
