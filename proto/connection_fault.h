// ConnectionFault: why no connection to a coordinator can be made. gRPC reports
// most causes only as a failure to connect; this connects once more and finds
// out.
//
// Threads: any. May wait for up to twice the given time.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "proto/channel_security.h"

namespace headroom::wire {

struct ConnectionFault {
  std::string what;        // "the coordinator at A:1 speaks no TLS"
  std::string remedy;      // what the user can do
  bool is_lasting = true;  // waiting will not help
};

// Returns nothing if a connection to `address` (HOST:PORT or a Unix socket) can
// be made.
std::optional<ConnectionFault> connection_fault(
    const std::string& address, const ChannelSecurity& security,
    std::chrono::milliseconds timeout = std::chrono::seconds(1));

}  // namespace headroom::wire
