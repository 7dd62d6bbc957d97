// RawConnection: a bare TCP connection to a coordinator, without gRPC.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

namespace headroom::coordinator {

class RawConnection {
 public:
  // Connects to the loopback address HOST:PORT.
  explicit RawConnection(const std::string& address)
      : handle_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string port = address.substr(address.rfind(':') + 1);
    name.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
    connected_ =
        connect(handle_, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0;
  }
  RawConnection(const RawConnection&) = delete;
  ~RawConnection() { close(handle_); }

  int port() const {
    sockaddr_in name{};
    socklen_t size = sizeof(name);
    getsockname(handle_, reinterpret_cast<sockaddr*>(&name), &size);
    return ntohs(name.sin_port);
  }
  bool connected() const { return connected_; }
  void send_bytes(const std::string& bytes) const {
    // The server may close at any byte, so a failed send is no test failure.
    (void)!send(handle_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // From now on sending and receiving give up after this time.
  void limit_waits(std::chrono::milliseconds most) const {
    const timeval time{.tv_sec = most.count() / 1000,
                       .tv_usec = most.count() % 1000 * 1000};
    for (const int way : {SO_SNDTIMEO, SO_RCVTIMEO}) {
      setsockopt(handle_, SOL_SOCKET, way, &time, sizeof(time));
    }
  }
  int handle() const { return handle_; }
  // Tells the server that no more bytes follow; receiving still works.
  void end_sending() const { shutdown(handle_, SHUT_WR); }
  // Reads until the peer closes the connection.
  std::string receive_all() const {
    std::string all;
    char bytes[4096];
    for (ssize_t count; (count = recv(handle_, bytes, sizeof(bytes), 0)) > 0;) {
      all.append(bytes, static_cast<size_t>(count));
    }
    return all;
  }
  bool is_closed_by_peer() const {
    char bytes[4096];
    ssize_t count = 0;
    do {
      count = recv(handle_, bytes, sizeof(bytes), MSG_DONTWAIT);
    } while (count > 0);
    return count == 0 || (errno != EAGAIN && errno != EINTR);
  }

 private:
  int handle_;
  bool connected_ = false;
};

}  // namespace headroom::coordinator
