// What happened, call by call; what follows from it is in
// run_transitions.cpp.
#include "coordinator/run/run_state.h"

#include "parallel/base/check.h"

namespace headroom::coordinator {
namespace {

// These end the whole run at once: no other worker would fare better.
bool is_everybodys(int exit_code) {
  return exit_code == static_cast<int>(ExitCode::kRequest) ||
         exit_code == static_cast<int>(ExitCode::kNoPlan) ||
         exit_code == static_cast<int>(ExitCode::kData);
}

}  // namespace

std::string to_string(RunPhase phase) {
  switch (phase) {
    case RunPhase::kWaiting:
      return "waiting";
    case RunPhase::kRunning:
      return "running";
    case RunPhase::kReforming:
      return "regrouping";
    case RunPhase::kStopping:
      return "stopping";
    case RunPhase::kFinished:
      return "finished";
    case RunPhase::kFailed:
      return "failed";
  }
  HEADROOM_CHECK(false, "phase " + std::to_string(static_cast<int>(phase)));
}

RunState::RunState(const RunOptions& options, const configs::RunConfig& config,
                   TimePoint now)
    : options_(options),
      config_(config),
      membership_(options.quorum.expected_workers, options.heartbeat_timeout),
      reason_("no agent has registered yet"),
      last_tick_(now) {}

std::optional<std::string> RunState::register_node(TimePoint now,
                                                   const Node& node) {
  const bool is_new = membership_.find_node(node.node_id) == nullptr;
  if (auto why = membership_.register_node(now, node)) return why;
  if (!waiting_since_) waiting_since_ = now;
  if (is_new && generation_.number > 0) {
    emit("agent_joins", -1,
         "the agent of node " + node.node_id + " has come, with " +
             std::to_string(node.worker_ids.size()) +
             (node.worker_ids.size() == 1 ? " worker" : " workers"));
  }
  const auto was_succeeded = [this](const std::string& worker_id) {
    return membership_.find(worker_id) == nullptr;
  };
  std::erase_if(not_coming_, was_succeeded);
  std::erase_if(restarts_,
                [&](const auto& entry) { return was_succeeded(entry.first); });
  advance(now);
  return std::nullopt;
}

std::optional<std::string> RunState::join(TimePoint now,
                                          const std::string& worker_id,
                                          const std::string& node_id) {
  if (auto why = membership_.join(now, worker_id, node_id)) return why;
  emit("join", -1,
       "worker " + worker_id + " on " + membership_.find(worker_id)->hostname +
           " has joined");
  if (over()) order(Order::Kind::kExit, worker_id, reason_);
  advance(now);
  return std::nullopt;
}

bool RunState::worker_heartbeat(
    TimePoint now, const std::string& worker_id,
    const std::optional<wire::RunProgress>& progress) {
  if (!membership_.heartbeat_worker(now, worker_id)) return false;
  if (progress) {
    measured_peak_bytes_[worker_id] = progress->measured_peak_bytes;
    // Heartbeats and commits overtake each other: never go back.
    if (rank_of(worker_id) == 0 && progress->step >= progress_.step) {
      progress_ = *progress;
    }
    lose_if_stuck(now, worker_id, *progress);
  }
  return true;
}

// Its peers wait for it, and only its end frees them; also where one of them is
// lost already, and it does not leave.
void RunState::lose_if_stuck(TimePoint now, const std::string& worker_id,
                             const wire::RunProgress& progress) {
  if (!can_reform() && phase_ != RunPhase::kRunning) return;
  if (rank_of(worker_id) < 0 || reforming_.left.contains(worker_id)) return;
  const auto why =
      stall_error(progress.quiet_ms, progress.median_step_ms, progress.step);
  if (!why) return;
  given_up_.insert(worker_id);
  membership_.leave(worker_id);
  Loss loss = loss_of(worker_id, *why);
  loss.explained = true;
  lose(now, std::move(loss));
  advance(now);
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
  const Member* member = membership_.find(worker_id);
  if (member == nullptr || !membership_.leave(worker_id)) return;
  if (released_.contains(worker_id)) return advance(now);
  // Once the run is over everybody leaves, at their own pace: MPI takes its
  // time to finalise. Whoever stays too long is the agent's business.
  if (!over()) given_up_.insert(worker_id);
  lose(now, loss_of(worker_id, "closed its connection"));
  advance(now);
}

RestartDecision RunState::worker_exited(TimePoint now,
                                        const std::string& worker_id,
                                        int exit_code,
                                        const std::string& last_words) {
  RestartDecision decision;
  const Member* member = membership_.find(worker_id);
  if (member == nullptr) {
    decision.reason = "it takes no part in this run";
    return decision;
  }
  given_up_.erase(worker_id);
  if (const auto known = restarts_.find(worker_id); known != restarts_.end()) {
    return known->second;
  }
  const bool was_released = released_.contains(worker_id) || over();
  const bool may_return = !was_released && can_reform();
  if (may_return) decision = restart_of(worker_id, exit_code);
  if (!decision.restart) not_coming_.insert(worker_id);
  Loss loss = loss_of(worker_id, describe_exit(exit_code));
  loss.exit_code = exit_code;
  loss.last_words = last_words;
  if (ending_.loss && ending_.loss->worker_id == worker_id) {
    ending_.loss->exit_code = exit_code;
    ending_.loss->last_words = last_words;
  }
  if (membership_.leave(worker_id) && !was_released) lose(now, loss);
  if (may_return) {
    emit("restart", loss.rank, "worker " + worker_id + ": " + decision.reason,
         !decision.restart);
  }
  if (decision.is_crash_loop && !over()) {
    if (phase_ != RunPhase::kStopping) begin_stopping(now);
    loss.time = now;
    loss.how += ", for the fifth time without a step between";
    loss.explained = true;
    ending_.loss = std::move(loss);
  }
  advance(now);
  if (phase_ == RunPhase::kStopping || over()) decision.restart = false;
  restarts_[worker_id] = decision;
  return decision;
}

RestartDecision RunState::restart_of(const std::string& worker_id,
                                     int exit_code) {
  const Member& member = *membership_.find(worker_id);
  SlotEnds& ends = slot_ends_[{member.node_id, member.local_slot}];
  if (num_commits_ > ends.at_commits) ends = {0, num_commits_};
  ++ends.count;
  return decide_restart(
      {exit_code, ends.count, draining_nodes_.contains(member.node_id)});
}

void RunState::worker_failed(TimePoint now, const std::string& worker_id,
                             int exit_code, const std::string& message,
                             int64_t committed_steps, bool peer_lost,
                             const SurvivorState& state) {
  if (membership_.find(worker_id) == nullptr || over()) return;
  membership_.heartbeat_worker(now, worker_id);
  const bool could_be_the_cause =
      !ending_.loss || ending_.loss->worker_id == worker_id;
  if (!peer_lost && is_everybodys(exit_code) && could_be_the_cause) {
    emit("fault", rank_of(worker_id), message, true);
    end(now, RunPhase::kFailed, exit_code, message);
    return;
  }
  if (peer_lost && rank_of(worker_id) >= 0) {
    if (phase_ == RunPhase::kRunning) {
      can_reform() ? begin_reforming(now) : begin_stopping(now);
    }
    if (phase_ == RunPhase::kReforming) {
      reforming_.has_loss = true;
      Leaving& left = reforming_.left[worker_id];
      left.cause = LeavingCause::kLostPeer;
      left.from = {committed_steps, ""};
      left.state = state;
    }
  }
  if (ending_.first_complaint.empty()) ending_.first_complaint = message;
  if (!peer_lost) {
    Loss loss = loss_of(worker_id, "stopped: " + message);
    loss.explained = true;
    lose(now, std::move(loss));
    if (!over() && phase_ != RunPhase::kStopping) begin_stopping(now);
  }
  if (Survivor* entry = survivor(worker_id)) {
    entry->committed_steps = committed_steps;
    entry->state = state;
    if (!peer_lost) entry->can_save = false;
  }
  advance(now);
}

std::optional<std::string> RunState::generation_left(
    TimePoint now, const std::string& worker_id, const Leaving& leaving) {
  if (over()) return std::nullopt;
  if (rank_of(worker_id) < 0) {
    return "worker " + worker_id + " is no member of generation " +
           std::to_string(generation_.number);
  }
  membership_.heartbeat_worker(now, worker_id);
  progress_.step = std::max(progress_.step, leaving.from.committed_steps);
  if (rank_of(worker_id) == 0) result_json_ = leaving.result_json;
  if (phase_ == RunPhase::kRunning) begin_reforming(now);
  if (phase_ == RunPhase::kReforming) {
    reforming_.left[worker_id] = leaving;
    if (leaving.cause == LeavingCause::kAsked) reforming_.is_asked = true;
  } else if (Survivor* entry = survivor(worker_id)) {
    note_left(*entry, leaving);
  }
  advance(now);
  return std::nullopt;
}

void RunState::note_left(Survivor& survivor, const Leaving& leaving) {
  survivor.committed_steps = leaving.from.committed_steps;
  survivor.state = leaving.state;
  if (leaving.cause != LeavingCause::kMemory) return;
  // Its state is in a checkpoint: there is nothing more to save.
  survivor.state = {true, leaving.from.committed_steps};
  ending_.saved_step = leaving.from.committed_steps;
}

void RunState::committed(int64_t step,
                         const std::optional<wire::RunProgress>& progress) {
  ++num_commits_;
  if (progress && progress->step >= progress_.step) progress_ = *progress;
  progress_.step = std::max(progress_.step, step);
  ending_.known_steps = progress_.step;
}

std::optional<std::string> RunState::finish(
    TimePoint now, const std::string& worker_id, int exit_code,
    const std::string& reason, const std::string& result_json, int64_t step) {
  if (over()) return std::nullopt;  // a repeated call whose answer was lost
  if (phase_ == RunPhase::kStopping && worker_id == ending_.saver) {
    ending_.saved_step = step;
    progress_.step = std::max(progress_.step, step);
    advance(now);
    return std::nullopt;
  }
  const int rank = rank_of(worker_id);
  if (rank != 0) {
    return "only rank 0 ends a run, or the worker that was told to save; "
           "worker " +
           worker_id + " is rank " + std::to_string(rank);
  }
  progress_.step = std::max(progress_.step, step);
  result_json_ = result_json;
  const bool as_it_should =
      exit_code == static_cast<int>(ExitCode::kDone) ||
      exit_code == static_cast<int>(ExitCode::kInterrupted);
  end(now, as_it_should ? RunPhase::kFinished : RunPhase::kFailed, exit_code,
      reason.empty() ? "finished after " + count_steps(step) : reason);
  return std::nullopt;
}

void RunState::drain(TimePoint now, const std::string& reason) {
  if (phase_ == RunPhase::kWaiting) {
    end(now, RunPhase::kFinished, static_cast<int>(ExitCode::kInterrupted),
        "interrupted before the run began: " + reason);
  } else if ((phase_ == RunPhase::kRunning || phase_ == RunPhase::kReforming) &&
             !stop_requested_) {
    stop_requested_ = true;
    emit("drain", -1, "the run ends at the next committed step: " + reason);
  }
}

void RunState::drain_node(TimePoint now, const std::string& node_id,
                          const std::string& reason) {
  if (over() || membership_.find_node(node_id) == nullptr) return;
  if (!draining_nodes_.insert(node_id).second) return;
  if (phase_ == RunPhase::kWaiting || available().empty()) {
    drain(now, reason);
    return;
  }
  emit("drain", -1,
       "the workers of node " + node_id +
           " leave at the next committed step: " + reason);
  advance(now);
}

void RunState::stop(TimePoint now, const std::string& reason) {
  if (over()) return;
  end(now, RunPhase::kFinished, static_cast<int>(ExitCode::kInterrupted),
      "the coordinator was stopped: " + reason);
}

std::vector<Order> RunState::take_orders() {
  return std::exchange(orders_, {});
}

std::vector<wire::EventRecord> RunState::take_events() {
  return std::exchange(events_, {});
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

RunStatus RunState::status(TimePoint now) const {
  RunStatus status;
  status.generation = generation_.number;
  status.state = to_string(phase_);
  status.reason = reason_;
  status.exit_code = exit_code_;
  status.run_directory = options_.run_directory;
  status.progress = progress_;
  status.memory_limit = config_.memory_limit;
  status.result_json = result_json_;
  if (generation_.number > 0) status.plan = generation_.plan;
  for (const Member& member : membership_.members()) {
    MemberStatus entry;
    entry.worker_id = member.worker_id;
    entry.node_id = member.node_id;
    entry.hostname = member.hostname;
    entry.rank = rank_of(member.worker_id);
    switch (member.state) {
      case MemberState::kExpected:
        entry.state = "expected";
        break;
      case MemberState::kJoined:
        entry.state = entry.rank < 0 ? "joined" : "running";
        break;
      case MemberState::kGone:
        entry.state = "gone";
        break;
    }
    if (member.state != MemberState::kExpected) {
      entry.heartbeat_age_seconds =
          std::chrono::duration<double>(now - member.last_seen).count();
    }
    const auto peak = measured_peak_bytes_.find(member.worker_id);
    if (peak != measured_peak_bytes_.end()) {
      entry.measured_peak_bytes = peak->second;
    }
    status.members.push_back(entry);
  }
  return status;
}

}  // namespace headroom::coordinator
