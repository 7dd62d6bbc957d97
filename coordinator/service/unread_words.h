// Signs of life that no call has brought: a coordinator that is busy is
// nobody's silence, and a connection that has ended is more than silence.
#pragma once

#include "coordinator/run/clock.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/connections.h"

namespace headroom::coordinator {

// Tells the state of members that have not been heard for a moment: whose words
// have come, but were not read yet, has spoken; an agent whose connection has
// ended has hung up.
void hear_the_unread(TimePoint now, const Connections& connections,
                     RunState& state);

}  // namespace headroom::coordinator
