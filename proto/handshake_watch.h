// HandshakeWatch: reports connections to this process's gRPC servers that ended
// before any call: clients without a certificate, port scanners, connections
// that send nothing.
//
// gRPC 1.51 has no hook for them, but logs a line for each ("Handshaking
// failed: ..."), which is parsed here.
// tests/coordinator/service/secure_network_test fails if another gRPC version
// changes the text.
//
// Ownership: `on_failure` is called until the destructor returns.
// Threads: any. `on_failure` is called from gRPC's threads, several at a time,
// and must not call gRPC.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace headroom::wire {

class HandshakeWatch {
 public:
  // `why` is a result of handshake_failure().
  using OnFailure = std::function<void(const std::string& why)>;

  explicit HandshakeWatch(OnFailure on_failure);
  ~HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;

 private:
  friend void note_grpc_line(std::string_view line);
  const OnFailure on_failure_;
};

// Returns "no certificate", "foreign certificate", "no TLS", "silent
// connection" or "broken handshake"; "" if the line of gRPC's log is not about
// a handshake.
std::string handshake_failure(std::string_view grpc_line);

// Call it for each line of gRPC's log.
void note_grpc_line(std::string_view line);

}  // namespace headroom::wire
