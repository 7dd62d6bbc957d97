#include "coordinator/service/heartbeats.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/run/regrouping.h"
#include "proto/convert.h"

namespace headroom::coordinator {
namespace {

std::optional<wire::RunProgress> progress_of(const auto& message) {
  if (!message.has_progress()) return std::nullopt;
  return wire::from_message<wire::RunProgress>(message.progress());
}

std::string no_part(const std::string& worker_id) {
  return "worker " + worker_id + " takes no part in this run (any more)";
}

// Applies an agent's beat for a worker; returns why the beat is stale, or
// nullopt.
std::optional<std::string> stale_error(TimePoint now, const wire::Stamp& stamp,
                                       const wire::WorkerBeat& beat,
                                       RunState& state) {
  const auto why = stamp_error(beat.generation(), stamp.run_digest(),
                               state.generation().number, stamp.run_digest(),
                               /*may_wait=*/true);
  if (why) return why;
  constexpr int64_t kDayMs = 86'400'000;
  const bool takes_part = state.worker_heartbeat(
      now, beat.worker_id(), progress_of(beat),
      std::chrono::milliseconds(std::clamp<int64_t>(beat.age_ms(), 0, kDayMs)));
  if (takes_part) {
    state.note_waiting(beat.worker_id(), beat.waits_for_peers());
    return std::nullopt;
  }
  return no_part(beat.worker_id());
}

}  // namespace

Answer hear_heartbeat(TimePoint now, const wire::HeartbeatRequest& request,
                      RunState& state, wire::HeartbeatResponse& response,
                      std::vector<Refusal>& stale) {
  if (request.worker_id().empty()) {
    const NodeAnswer node = state.node_heartbeat(now, request.node_id());
    if (!node.known) {
      return {{RefusalKind::kStale,
               "node " + request.node_id() + " is not registered"}};
    }
    for (const std::string& worker_id : node.lost_worker_ids) {
      response.add_lost_worker_ids(worker_id);
    }
  } else if (state.worker_heartbeat(now, request.worker_id(),
                                    progress_of(request))) {
    state.note_waiting(request.worker_id(), request.waits_for_peers());
  } else {
    return {{RefusalKind::kStale, no_part(request.worker_id())}};
  }
  for (const wire::WorkerBeat& beat : request.beats()) {
    const auto why = stale_error(now, request.stamp(), beat, state);
    if (!why) continue;
    stale.push_back({RefusalKind::kStale, *why});
    wire::StaleBeat& entry = *response.add_stale_beats();
    entry.set_worker_id(beat.worker_id());
    entry.set_reason(*why);
  }
  response.set_stop_requested(state.stop_requested());
  response.set_leave_requested(state.leave_requested());
  response.set_peer_lost(state.peer_lost());
  response.set_a_peer_works(state.a_member_works());
  response.set_run_over(state.over());
  response.set_exit_code(state.exit_code());
  if (state.over()) response.set_reason(state.reason());
  if (const FolderPlace place = state.folder(); place.is_known()) {
    *response.mutable_folder() = wire::to_message<wire::FolderPlace>(place);
  }
  return std::nullopt;
}

void note_unread_heartbeats(TimePoint now, const Connections& connections,
                            RunState& state) {
  constexpr std::chrono::milliseconds kQuiet{500};
  const auto note_unread = [&](const std::string& name) {
    const auto at = connections.unread_since(now, name);
    if (at) state.note_sign_of_life(*at, name);
  };
  for (const Member& member : state.membership().members()) {
    // For workers whose agent reports for them, check the agent's connection.
    if (member.state != MemberState::kJoined || member.is_reported) continue;
    if (now - member.last_seen >= kQuiet) note_unread(member.worker_id);
  }
  for (const Node& node : state.membership().nodes()) {
    if (now - node.last_seen < kQuiet) continue;
    note_unread(node.node_id);
    if (!connections.is_connected(node.node_id)) {
      state.note_hangup(node.node_id);
    }
  }
}

}  // namespace headroom::coordinator
