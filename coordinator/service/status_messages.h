// Converts RunStatus and its parts to messages (server) and back (control
// client).
#pragma once

#include "coordinator/run/run_status.h"
#include "proto/coordinator.pb.h"

namespace headroom::coordinator {

wire::GetStatusResponse to_wire(const RunStatus& status);
// Throws Error if the message's plan is not valid.
RunStatus from_wire(const wire::GetStatusResponse& message);

}  // namespace headroom::coordinator
