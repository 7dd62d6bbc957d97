#include "coordinator/service/unread_heartbeats.h"

#include <chrono>
#include <string>

namespace headroom::coordinator {

void note_unread_heartbeats(TimePoint now, const Connections& connections,
                            RunState& state) {
  constexpr std::chrono::milliseconds kQuiet{500};
  const auto note_unread = [&](const std::string& name) {
    const auto at = connections.unread_since(now, name);
    if (at) state.note_sign_of_life(*at, name);
  };
  for (const Member& member : state.membership().members()) {
    // Workers reported by an agent are covered by the agent's connection.
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
