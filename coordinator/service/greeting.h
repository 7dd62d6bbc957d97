// Greeting: the first bytes of an HTTP/2 connection without TLS, read before
// gRPC gets the connection.
//
// gRPC limits the calls of a connection only once its client has acknowledged
// that limit, and a client of ill will never does: then each 100 bytes cost the
// server up to 9 KB. So the front door itself states the limit, in the frame
// with which every server begins, and gives gRPC only connections that have
// acknowledged it. Every HTTP/2 client acknowledges at once.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headroom::coordinator {

// Calls at one time on a connection. More let a member wait for more keys at
// once; each costs a stranger's connection up to 9 KB.
inline constexpr int kMostCalls = 128;

// A client's bytes before its acknowledgement that are looked at. gRPC's
// clients send about 100.
inline constexpr size_t kMostGreeting = 16 << 10;

// The SETTINGS frame that states kMostCalls.
std::string settings_frame();

enum class Greeting {
  kIncomplete,    // more bytes decide
  kAcknowledged,  // the client knows the limit
  kNoClient       // this is no HTTP/2 client
};

// `bytes`: all that the client has sent.
Greeting read_greeting(std::string_view bytes);

}  // namespace headroom::coordinator
