#include "worker/control/coordinator_call.h"

#include <thread>

#include "parallel/base/peer_wait.h"
#include "proto/channel.h"

namespace headroom::control {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause{100};

}  // namespace

void set_deadline(grpc::ClientContext& context,
                  std::chrono::milliseconds timeout) {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
}

grpc::Status Patience::call(
    std::chrono::milliseconds timeout,
    const std::function<grpc::Status(grpc::ClientContext&)>& send) const {
  const PeerWait waiting;  // the coordinator may wait for other workers
  const auto end = SteadyClock::now() + time;
  for (;;) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    set_deadline(context, timeout);
    const grpc::Status status = send(context);
    if (status.ok() || !wire::is_unreachable(status) ||
        SteadyClock::now() >= end || is_over()) {
      return status;
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace headroom::control
