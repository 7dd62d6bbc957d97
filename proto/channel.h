// Channel: how every client of the coordinator connects, and how a refused or
// failed call becomes an exception.
//
// One place for the connection's settings, because worker and agent must
// behave alike when the coordinator is away: reconnect at least once a second,
// notice a dead peer by keep-alive, never go through a proxy.
//
// Threads: the functions are safe from any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/channel_security.h"
#include "proto/member_identity.h"

namespace headroom::wire {

// Requests other than events and results, which may be four times as large.
inline constexpr int kMaxMessageBytes = 1 << 20;
inline constexpr int kMaxReportBytes = 4 << 20;

// How often workers and agents say that they live.
inline constexpr std::chrono::milliseconds kHeartbeatInterval{250};

// The time without a word after which a connection is asked for one, and how
// long an answer may take. It is longer than any silence that the coordinator
// bears (coordinator/run/silence.h): gRPC also hands it to TCP as the time for
// which what was sent may stay unconfirmed.
inline constexpr int kKeepAliveMs = 5000;
inline constexpr int kKeepAliveTimeoutMs = 7000;

// gRPC's own log lines become debug lines of ours, and its locks are not
// searched for deadlocks, which Debian's build does in an eighth of its time;
// once per process.
void quieten_grpc();

// What both ends of a connection are told alike, by gRPC's name.
const std::vector<std::pair<const char*, int>>& connection_settings();

// The metadata keys of a call: the join token, and who its member is.
inline constexpr const char* kTokenMetadata = "headroom-token";
inline constexpr const char* kNodeMetadata = "headroom-node";
inline constexpr const char* kWorkerMetadata = "headroom-worker";
inline constexpr const char* kSecretMetadata = "headroom-secret";

// Connects lazily. `address` is HOST:PORT or a Unix socket's. Each call says
// who `identity` is; "" leaves that out.
std::shared_ptr<grpc::Channel> make_channel(
    const std::string& address,
    const ChannelSecurity& security = channel_security(),
    const MemberIdentity& identity = {});

// The credentials of a server that asks all clients for a certificate; plain
// text without one.
std::shared_ptr<grpc::ServerCredentials> server_credentials(
    const ChannelSecurity& security);

// REQUIRES: !status.ok(). Throws CommunicationError if nobody answered within
// the deadline, else Error with the coordinator's own words: exit 2 if it
// refused what was asked, 5 otherwise. `doing` starts the sentence:
// "registering with the coordinator at HOST:PORT". Where nobody answered and
// `address` is not "", it says why (connection_fault.h).
[[noreturn]] void throw_failure(const grpc::Status& status,
                                const std::string& doing,
                                const std::string& address = "");

// True if the connection, not the coordinator, said no, or the coordinator is
// too busy: a later call may be answered.
bool is_unreachable(const grpc::Status& status);

}  // namespace headroom::wire
