// Signs of life that no call has reported yet: a busy coordinator must not take
// its own delay for a member's silence, and a closed connection shows at once
// that an agent has ended.
#pragma once

#include "coordinator/run/clock.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/connections.h"

namespace headroom::coordinator {

// For members whose last heartbeat is half a second old: records when their
// unread bytes arrived, and which agents' connections have ended.
void note_unread_heartbeats(TimePoint now, const Connections& connections,
                            RunState& state);

}  // namespace headroom::coordinator
