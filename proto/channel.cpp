#include "proto/channel.h"

#include <grpc/support/log.h>

#include <mutex>

#include "parallel/base/check.h"
#include "parallel/base/log.h"

namespace headroom {

void quieten_grpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function([](gpr_log_func_args* line) {
      log::debug(std::string("grpc: ") + line->message);
    });
  });
}

std::shared_ptr<grpc::Channel> make_channel(const std::string& address) {
  quieten_grpc();
  constexpr int kMaxAnswerBytes = 64 << 20;  // a status with its events
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The default grows to two minutes, longer than a coordinator's restart.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A connection of its own, so that its loss is this client's loss.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

bool is_unreachable(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
         status.error_code() == grpc::StatusCode::CANCELLED;
}

void throw_failure(const grpc::Status& status, const std::string& doing) {
  if (is_unreachable(status)) {
    throw CommunicationError(doing + ": no answer (" + status.error_message() +
                             ")");
  }
  const bool refused =
      status.error_code() == grpc::StatusCode::FAILED_PRECONDITION ||
      status.error_code() == grpc::StatusCode::INVALID_ARGUMENT;
  throw Error("coordinator", doing + ": " + status.error_message(), "",
              refused ? ExitCode::kRequest : ExitCode::kResource);
}

}  // namespace headroom
