// CuttableWire: a TCP relay in front of a coordinator. The test can cut the
// relay, as if the coordinator's machine were lost, and restore it.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace headroom::coordinator {

class CuttableWire {
 public:
  // Relays to the loopback address HOST:PORT. Each piece has at most `piece`
  // bytes and takes `pause`, as on a slow link.
  explicit CuttableWire(const std::string& target, size_t piece = kMostPiece,
                        std::chrono::milliseconds pause = {})
      : target_port_(port_of(target)), piece_(piece), pause_(pause) {
    mend();
  }
  CuttableWire(const CuttableWire&) = delete;
  ~CuttableWire() { cut(); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  // While set, the relay passes no data on and closes no connection, like a
  // pulled cable. No data is lost if it is reset in time.
  void set_silent(bool silent) { silent_ = silent; }

  // Every connection breaks, and new ones are refused.
  void cut() {
    if (!relay_.joinable()) return;
    cut_ = true;
    relay_.join();
  }

  // Listens again on the same port.
  void mend() {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in name = loopback(port_);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&name), sizeof(name)),
              0);
    EXPECT_EQ(listen(listener_, 64), 0);
    socklen_t length = sizeof(name);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &length);
    port_ = ntohs(name.sin_port);
    cut_ = false;
    relay_ = std::thread([this] { relay(); });
  }

 private:
  static constexpr size_t kMostPiece = 16384;

  struct Pair {
    int from;
    int to;
  };

  static uint16_t port_of(const std::string& address) {
    return static_cast<uint16_t>(
        std::stoi(address.substr(address.rfind(':') + 1)));
  }
  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons(port);
    return name;
  }

  void accept_one() {
    const int client = accept(listener_, nullptr, nullptr);
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in name = loopback(target_port_);
    EXPECT_EQ(
        connect(server, reinterpret_cast<const sockaddr*>(&name), sizeof(name)),
        0);
    pairs_.push_back({client, server});
    pairs_.push_back({server, client});
  }

  void relay() {
    char bytes[kMostPiece];
    while (!cut_) {
      if (silent_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        continue;
      }
      std::vector<pollfd> ready = {{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) ready.push_back({pair.from, POLLIN, 0});
      poll(ready.data(), ready.size(), 10);
      for (size_t i = 1; i < ready.size(); ++i) {
        if (ready[i].revents == 0) continue;
        Pair& pair = pairs_[i - 1];
        const ssize_t count = recv(pair.from, bytes, piece_, 0);
        if (count > 0) {
          std::this_thread::sleep_for(pause_);
          (void)!send(pair.to, bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
        } else {
          shutdown(pair.to, SHUT_RDWR);
        }
      }
      if (ready[0].revents != 0) accept_one();
    }
    close(listener_);
    for (size_t i = 0; i < pairs_.size(); i += 2) {
      close(pairs_[i].from);
      close(pairs_[i].to);
    }
    pairs_.clear();
  }

  const uint16_t target_port_;
  const size_t piece_;
  const std::chrono::milliseconds pause_;
  uint16_t port_ = 0;
  int listener_ = -1;
  std::atomic<bool> cut_ = false;
  std::atomic<bool> silent_ = false;
  std::vector<Pair> pairs_;
  std::thread relay_;
};

}  // namespace headroom::coordinator
