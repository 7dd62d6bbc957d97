// CoordinatorCall: a call to the coordinator that has patience with it.
//
// A coordinator that is away may be one that is being started again: while
// nobody is there the call is made anew, until the time is over or the caller
// gives up.
//
// Errors: none of its own; the call's status is returned.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <functional>

namespace headroom::control {

// The time of a call that waits for nobody.
inline constexpr std::chrono::milliseconds kCallTimeout{5000};

void set_deadline(grpc::ClientContext& context,
                  std::chrono::milliseconds timeout);

struct Patience {
  std::chrono::milliseconds time;
  std::function<bool()> is_over;  // it is given up already

  // The answer of `send`, which is called again while nobody is there.
  grpc::Status call(
      std::chrono::milliseconds timeout,
      const std::function<grpc::Status(grpc::ClientContext&)>& send) const;
};

}  // namespace headroom::control
