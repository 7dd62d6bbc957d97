// Heartbeats: a heartbeat is applied to the run and answered; a heartbeat that
// gRPC has not read yet counts as a sign of life.
#pragma once

#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/call_admission.h"
#include "coordinator/service/connections.h"
#include "proto/coordinator.pb.h"

namespace headroom::coordinator {

// Applies a heartbeat to `state` and fills `response`. Returns a refusal if the
// sender is unknown or has no part in the run. Stale beats of an agent's
// workers are listed in `stale` and in `response`; the agent's other beats are
// applied. REQUIRES: CallerRules::check(caller, request) gave no refusal.
Answer hear_heartbeat(TimePoint now, const wire::HeartbeatRequest& request,
                      RunState& state, wire::HeartbeatResponse& response,
                      std::vector<Refusal>& stale);

// For members whose last heartbeat is at least half a second old: records when
// bytes arrived that gRPC has not read yet, and which agents' connections have
// ended. So the delay of a busy coordinator does not count as a member's
// silence.
void note_unread_heartbeats(TimePoint now, const Connections& connections,
                            RunState& state);

}  // namespace headroom::coordinator
