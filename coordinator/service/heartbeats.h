// Applies a heartbeat to the run and forms the answer.
#pragma once

#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/call_admission.h"
#include "proto/coordinator.pb.h"

namespace headroom::coordinator {

// Returns why the sender's own heartbeat does not count. Those of an agent's
// workers that do not count are put into `stale` and into the response; the
// others count. REQUIRES: CallerRules::check_heartbeat(request).
Answer hear_heartbeat(TimePoint now, const wire::HeartbeatRequest& request,
                      RunState& state, wire::HeartbeatResponse& response,
                      std::vector<Refusal>& stale);

}  // namespace headroom::coordinator
