// Signs of life on connections that no call has reported yet: a coordinator
// that is busy must not take its own delay for a member's silence, and a
// connection that has ended tells of an agent's end at once.
#pragma once

#include "coordinator/run/clock.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/connections.h"

namespace headroom::coordinator {

// For members whose last heartbeat is half a second old: notes when bytes of
// theirs arrived that are still unread, and which agents' connections have
// ended.
void note_unread_heartbeats(TimePoint now, const Connections& connections,
                            RunState& state);

}  // namespace headroom::coordinator
