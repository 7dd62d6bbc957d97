// CoordinatorCall: calls the coordinator; retries while it is unreachable.
//
// An unreachable coordinator may be restarting. So the call is repeated until
// the time is over or the caller gives up.
//
// Errors: throws no exception; returns the status of the call.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <functional>

namespace headroom::control {

// Time limit of a call that does not wait for other workers.
inline constexpr std::chrono::milliseconds kCallTimeout{5000};

void set_deadline(grpc::ClientContext& context,
                  std::chrono::milliseconds timeout);

struct Patience {
  std::chrono::milliseconds time;
  std::function<bool()> is_over;  // returns true once the caller gives up

  // Calls `send` and returns its status. Repeats it while the coordinator is
  // unreachable.
  grpc::Status call(
      std::chrono::milliseconds timeout,
      const std::function<grpc::Status(grpc::ClientContext&)>& send) const;
};

}  // namespace headroom::control
