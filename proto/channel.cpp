#include "proto/channel.h"

#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>
#include <grpcpp/support/client_interceptor.h>

#include <mutex>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/run_files.h"
#include "proto/connection_fault.h"

namespace headroom::wire {
namespace {

namespace experimental = grpc::experimental;

using Headers = std::vector<std::pair<std::string, std::string>>;

// Adds the token and the caller's identity to every call, also without TLS.
// (gRPC's own call credentials require TLS.)
class HeaderInterceptor final : public experimental::Interceptor {
 public:
  explicit HeaderInterceptor(const Headers& headers) : headers_(headers) {}
  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      for (const auto& [name, value] : headers_) {
        methods->GetSendInitialMetadata()->emplace(name, value);
      }
    }
    methods->Proceed();
  }

 private:
  const Headers headers_;
};

class HeaderInterceptors final
    : public experimental::ClientInterceptorFactoryInterface {
 public:
  explicit HeaderInterceptors(Headers headers) : headers_(std::move(headers)) {}
  experimental::Interceptor* CreateClientInterceptor(
      experimental::ClientRpcInfo*) override {
    return new HeaderInterceptor(headers_);
  }

 private:
  const Headers headers_;
};

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(
    const ChannelSecurity& security) {
  if (!security.is_encrypted()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = security.ca;
  options.pem_cert_chain = security.certificate;
  options.pem_private_key = security.key;
  return grpc::SslCredentials(options);
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> server_credentials(
    const ChannelSecurity& security) {
  if (!security.is_encrypted()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = security.ca;
  options.pem_key_cert_pairs.push_back({security.key, security.certificate});
  return grpc::SslServerCredentials(options);
}

void quieten_grpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    gpr_set_log_function([](gpr_log_func_args* line) {
      log::debug(std::string("grpc: ") + line->message);
    });
  });
}

const std::vector<std::pair<const char*, int>>& connection_settings() {
  static const std::vector<std::pair<const char*, int>> settings = {
      {GRPC_ARG_KEEPALIVE_TIME_MS, kKeepAliveMs},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepAliveTimeoutMs},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      // The window is fixed here, so gRPC need not estimate it with pings.
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kMaxMessageBytes},
      // gRPC's statistics are unused, and take memory for each connection.
      {GRPC_ARG_ENABLE_CHANNELZ, 0},
      {GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0}};
  return settings;
}

std::shared_ptr<grpc::Channel> make_channel(const std::string& address,
                                            const ChannelSecurity& security,
                                            const MemberIdentity& identity) {
  quieten_grpc();
  constexpr int kMaxAnswerBytes = 64 << 20;  // for a status with events
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : connection_settings()) {
    arguments.SetInt(name, value);
  }
  // gRPC's default delay between attempts grows to two minutes, which is longer
  // than a coordinator's restart.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Minimum duration of a connection attempt. If thousands of clients connected
  // at once and each gave up early, no client would get a connection. TCP
  // itself retries.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 3000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Each channel has its own connection, so a lost connection affects only one
  // client.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  arguments.SetMaxSendMessageSize(kMaxReportBytes);
  std::vector<std::unique_ptr<experimental::ClientInterceptorFactoryInterface>>
      interceptors;
  Headers headers = {{kTokenMetadata, security.token},
                     {kNodeMetadata, identity.node_id},
                     {kWorkerMetadata, identity.worker_id},
                     {kSecretMetadata, identity.secret}};
  std::erase_if(headers,
                [](const auto& header) { return header.second.empty(); });
  interceptors.push_back(std::make_unique<HeaderInterceptors>(headers));
  return experimental::CreateCustomChannelWithInterceptors(
      address,
      channel_credentials(is_unix_socket(address) ? ChannelSecurity()
                                                  : security),
      arguments, std::move(interceptors));
}

bool is_unreachable(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
         status.error_code() == grpc::StatusCode::CANCELLED ||
         // gRPC itself is overloaded (HTTP/2's ENHANCE_YOUR_CALM).
         (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
          status.error_message().starts_with("Received RST_STREAM"));
}

void throw_failure(const grpc::Status& status, const std::string& doing,
                   const std::string& address) {
  if (is_unreachable(status)) {
    const auto fault = address.empty()
                           ? std::nullopt
                           : connection_fault(address, channel_security());
    if (fault) {
      throw CommunicationError(doing + ": " + fault->what + ": " +
                               fault->remedy);
    }
    throw CommunicationError(doing + ": no answer (" + status.error_message() +
                             ")");
  }
  const bool refused =
      status.error_code() == grpc::StatusCode::FAILED_PRECONDITION ||
      status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
      status.error_code() == grpc::StatusCode::PERMISSION_DENIED ||
      status.error_code() == grpc::StatusCode::INVALID_ARGUMENT;
  throw Error(
      "coordinator", doing + ": " + status.error_message(),
      status.error_code() == grpc::StatusCode::UNAUTHENTICATED
          ? std::string("give the run's with --token-file FILE: RUN_DIR/") +
                run_files::kJoinToken + " where headroom train drew it"
          : "",
      refused ? ExitCode::kRequest : ExitCode::kResource);
}

}  // namespace headroom::wire
