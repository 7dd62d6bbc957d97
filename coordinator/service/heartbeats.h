// Heartbeats: a heartbeat that a call brings is applied to the run and answered;
// one that gRPC has not read yet counts as a sign of life.
#pragma once

#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/call_admission.h"
#include "coordinator/service/connections.h"
#include "proto/coordinator.pb.h"

namespace headroom::coordinator {

// Returns why the sender's own heartbeat does not count. Workers of an agent
// whose beats do not count are listed in `stale` and the response; the other
// beats count. REQUIRES: CallerRules::check(caller, request).
Answer hear_heartbeat(TimePoint now, const wire::HeartbeatRequest& request,
                      RunState& state, wire::HeartbeatResponse& response,
                      std::vector<Refusal>& stale);

// For members whose last heartbeat is half a second old: records when their
// unread bytes arrived, and which agents' connections have ended. A busy
// coordinator must not take its own delay for a member's silence.
void note_unread_heartbeats(TimePoint now, const Connections& connections,
                            RunState& state);

}  // namespace headroom::coordinator
