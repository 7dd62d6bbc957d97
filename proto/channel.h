// How every client connects to the coordinator, and how a refused or failed
// call becomes an exception.
//
// The connection's settings are in one place, because workers and agents must
// behave alike when the coordinator is unreachable: they reconnect at least
// once a second, detect a dead peer by keep-alive, and never use a proxy.
//
// Threads: the functions are safe from any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/channel_security.h"
#include "proto/member_identity.h"

namespace headroom::wire {

// The largest request. Events and results may have kMaxReportBytes.
inline constexpr int kMaxMessageBytes = 1 << 20;
inline constexpr int kMaxReportBytes = 4 << 20;

// How often workers and agents send a heartbeat. A shorter interval detects a
// loss sooner and loads the coordinator more.
inline constexpr std::chrono::milliseconds kHeartbeatInterval{250};

// After kKeepAliveMs without data, gRPC sends a ping, which must be answered
// within kKeepAliveTimeoutMs. The timeout exceeds every limit of
// coordinator/run/silence.h, because gRPC also sets it as the time for which
// TCP may leave sent data unacknowledged.
inline constexpr int kKeepAliveMs = 5000;
inline constexpr int kKeepAliveTimeoutMs = 7000;

// Sends gRPC's log lines to our log at debug level. Also turns off absl's
// search for deadlocks, which takes an eighth of gRPC's time in Debian's build.
// Only the first call in a process has an effect.
void quieten_grpc();

// gRPC settings that both ends of a connection use, by gRPC's names.
const std::vector<std::pair<const char*, int>>& connection_settings();

// Metadata keys of a call: the join token, and the caller's identity.
inline constexpr const char* kTokenMetadata = "headroom-token";
inline constexpr const char* kNodeMetadata = "headroom-node";
inline constexpr const char* kWorkerMetadata = "headroom-worker";
inline constexpr const char* kSecretMetadata = "headroom-secret";

// Owns an object of gRPC. While an exception is on its way the object is left
// as it is: if the system refused one of gRPC's threads, the destructor would
// wait for that thread for ever, and no message would be printed.
struct DestroyUnlessFailing {
  template <typename Object>
  void operator()(Object* object) const {
    if (std::uncaught_exceptions() == 0) delete object;
  }
};
template <typename Object>
using GrpcOwner = std::unique_ptr<Object, DestroyUnlessFailing>;

// Connects lazily. `address` is HOST:PORT or the address of a Unix socket. Each
// call carries `identity`, without the fields that are "".
std::shared_ptr<grpc::Channel> make_channel(
    const std::string& address,
    const ChannelSecurity& security = channel_security(),
    const MemberIdentity& identity = {});

// Credentials of a server that requires a certificate of every client; plain
// text if `security` has no certificate.
std::shared_ptr<grpc::ServerCredentials> server_credentials(
    const ChannelSecurity& security);

// Throws CommunicationError if the coordinator could not be reached within the
// deadline; else Error with the coordinator's message, with exit 2 if it
// refused the request and 5 otherwise. `doing` begins the message: "registering
// with the coordinator at HOST:PORT". If `address` is given and the coordinator
// could not be reached, the message says why (connection_fault.h). REQUIRES:
// !status.ok().
[[noreturn]] void throw_failure(const grpc::Status& status,
                                const std::string& doing,
                                const std::string& address = "");

// Returns true if the connection failed or the coordinator is too busy, so that
// a later call may succeed; false if the coordinator itself refused.
bool is_unreachable(const grpc::Status& status);

}  // namespace headroom::wire
