// What a heartbeat tells the run, and what it is answered.
#pragma once

#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/call_admission.h"
#include "proto/coordinator.pb.h"

namespace headroom::coordinator {

// Why the sender's own words do not count; an agent's workers' that do not are
// in `stale` and in the response, and the others count. REQUIRES
// CallerRules::check_heartbeat(request).
Answer hear_heartbeat(TimePoint now, const wire::HeartbeatRequest& request,
                      RunState& state, wire::HeartbeatResponse& response,
                      std::vector<Refusal>& stale);

}  // namespace headroom::coordinator
