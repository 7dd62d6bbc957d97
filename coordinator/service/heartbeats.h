// Applies a heartbeat to the run and forms the answer.
#pragma once

#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/call_admission.h"
#include "proto/coordinator.pb.h"

namespace headroom::coordinator {

// Returns why the sender's own heartbeat does not count. Workers of an agent
// whose beats do not count are listed in `stale` and the response; the other
// beats count. REQUIRES: CallerRules::check_heartbeat(request).
Answer hear_heartbeat(TimePoint now, const wire::HeartbeatRequest& request,
                      RunState& state, wire::HeartbeatResponse& response,
                      std::vector<Refusal>& stale);

}  // namespace headroom::coordinator
