// HandshakeWatch: hears of connections that this process's gRPC servers ended
// before anybody could call anything: strangers without a certificate, port
// scanners, who connects and says nothing.
//
// gRPC 1.51 offers no hook for them, but logs one line each ("Handshaking
// failed: ..."); tests/coordinator/service/secure_network_test fails where
// another version words it otherwise.
//
// Ownership: `on_failure` is called until the destructor returns.
// Threads: any; `on_failure` is called from gRPC's, several at a time, and must
// not call gRPC.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace headroom::wire {

class HandshakeWatch {
 public:
  // One of handshake_failure()'s words.
  using OnFailure = std::function<void(const std::string& why)>;

  explicit HandshakeWatch(OnFailure on_failure);
  ~HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;

 private:
  friend void note_grpc_line(std::string_view line);
  const OnFailure on_failure_;
};

// "no certificate", "foreign certificate", "no TLS", "silent connection",
// "broken handshake"; "" if the line of gRPC's log is about something else.
std::string handshake_failure(std::string_view grpc_line);

// REQUIRED for each line of gRPC's log.
void note_grpc_line(std::string_view line);

}  // namespace headroom::wire
