#include "coordinator/service/unread_words.h"

#include <chrono>
#include <string>

namespace headroom::coordinator {

void hear_the_unread(TimePoint now, const Connections& connections,
                     RunState& state) {
  constexpr std::chrono::milliseconds kQuiet{500};
  const auto hear = [&](const std::string& name) {
    const auto at = connections.unread_since(now, name);
    if (at) state.note_sign_of_life(*at, name);
  };
  for (const Member& member : state.membership().members()) {
    // What its agent says of it is in the agent's words.
    if (member.state != MemberState::kJoined || member.is_reported) continue;
    if (now - member.last_seen >= kQuiet) hear(member.worker_id);
  }
  for (const Node& node : state.membership().nodes()) {
    if (now - node.last_seen < kQuiet) continue;
    hear(node.node_id);
    if (!connections.is_connected(node.node_id)) {
      state.note_hangup(node.node_id);
    }
  }
}

}  // namespace headroom::coordinator
