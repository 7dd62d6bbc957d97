// ConnectionFault: why no connection to a coordinator can be made. gRPC reports
// most causes only as a failure to connect, so connection_fault() connects once
// more to find the cause.
//
// Threads: any. May wait for up to twice the given time.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "proto/channel_security.h"

namespace headroom::wire {

struct ConnectionFault {
  std::string what;        // "the coordinator at A:1 does not use TLS"
  std::string remedy;      // what the user can do
  bool is_lasting = true;  // later attempts would fail too
};

// Returns nullopt if a connection to `address` (HOST:PORT or a Unix socket)
// succeeds.
std::optional<ConnectionFault> connection_fault(
    const std::string& address, const ChannelSecurity& security,
    std::chrono::milliseconds timeout = std::chrono::seconds(1));

}  // namespace headroom::wire
