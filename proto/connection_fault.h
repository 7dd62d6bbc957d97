// ConnectionFault: why a coordinator cannot be spoken to. gRPC says of most
// causes only that nobody answered; this connects once more and looks.
//
// Threads: any; it waits for at most the given time, twice.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "proto/channel_security.h"

namespace headroom::wire {

struct ConnectionFault {
  std::string what;        // "the coordinator at A:1 speaks no TLS"
  std::string remedy;      // what to do
  bool is_lasting = true;  // waiting does not help
};

// Nothing where a connection to `address` (HOST:PORT) stands.
std::optional<ConnectionFault> connection_fault(
    const std::string& address, const ChannelSecurity& security,
    std::chrono::milliseconds timeout = std::chrono::seconds(1));

}  // namespace headroom::wire
