// RunStatus and its parts <-> their messages: the server fills, the control
// client reads.
#pragma once

#include "coordinator/run/run_status.h"
#include "proto/coordinator.pb.h"

namespace headroom::coordinator {

wire::GetStatusResponse to_wire(const RunStatus& status);
// Throws Error if the plan in it is no plan.
RunStatus from_wire(const wire::GetStatusResponse& message);

}  // namespace headroom::coordinator
