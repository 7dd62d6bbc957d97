// Greeting: the first bytes of an HTTP/2 connection without TLS, read before
// gRPC gets the connection.
//
// gRPC limits the calls of a connection only once its client has acknowledged
// that limit. A malicious client never acknowledges it, and then each 100 bytes
// cost the server up to 9 KB. So the front door itself states the limit, in the
// frame with which every server begins, and gives gRPC only connections that
// have acknowledged it. Every HTTP/2 client acknowledges at once.
//
// Even calls within the limit cost memory before gRPC hands them over, so a
// connection is given to gRPC only if its first call has the run's token.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::coordinator {

// Calls at one time on a connection. With a larger value a member can wait for
// more keys at once, but each call costs up to 9 KB on a stranger's connection.
inline constexpr int kMostCalls = 128;

// How many of a client's bytes are searched for its acknowledgement. gRPC's
// clients send about 100 bytes before it.
inline constexpr size_t kMostGreeting = 16 << 10;

// The SETTINGS frame that states kMostCalls.
std::string settings_frame();

enum class Greeting {
  kIncomplete,  // more bytes are needed to decide
  kWelcome,     // it acknowledged the limit, and its first call has the token
  kWrongToken,  // its first call has another token or no token
  kNoClient     // the bytes are not from an HTTP/2 client
};

struct ReadGreeting {
  Greeting greeting = Greeting::kIncomplete;
  uint32_t stream = 0;  // the stream of the first call, for kWrongToken
};

// `bytes`: all that the client has sent. `token` is searched for in the header
// of the first call, where gRPC's clients write values uncompressed. If `token`
// is "", neither a token nor a call is needed.
ReadGreeting read_greeting(std::string_view bytes, std::string_view token);

// The frame that refuses the call on a stream, as gRPC would:
// UNAUTHENTICATED, with this message of at most 100 bytes.
std::string refusal_frame(uint32_t stream, const std::string& message);

}  // namespace headroom::coordinator
