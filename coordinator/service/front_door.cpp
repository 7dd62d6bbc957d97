#include "coordinator/service/front_door.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "coordinator/service/greeting.h"
#include "coordinator/service/refusals.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::coordinator {
namespace {

constexpr int kTickMs = 50;
constexpr int kBacklog = 4096;
// What one connection may hold in the kernel (Linux doubles it). gRPC parses it
// even after the connection is closed, so the kernel's own 6 MiB and more would
// let a flood exceed its budget. Members' messages are small or not urgent.
constexpr int kReceiveBuffer = 32 << 10;

Error cannot_listen(const ListenAddress& address, const std::string& why) {
  return Error("coordinator",
               "cannot listen on " + address.to_string() + ": " + why,
               "choose another address, or port 0 for any free port");
}

void set_port(sockaddr* name, int port) {
  const auto number = htons(static_cast<uint16_t>(port));
  if (name->sa_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(name)->sin_port = number;
  } else {
    reinterpret_cast<sockaddr_in6*>(name)->sin6_port = number;
  }
}

int port_of(int descriptor) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.ss_family == AF_INET
                   ? reinterpret_cast<sockaddr_in*>(&name)->sin_port
                   : reinterpret_cast<sockaddr_in6*>(&name)->sin6_port);
}

// Returns a listening descriptor, or -1 with errno.
int listener_at(const addrinfo& where, bool shares_port) {
  const int handle =
      socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (handle < 0) return -1;
  const int on = 1;
  const int shares = shares_port ? 1 : 0;
  // The listener at "::" also accepts IPv4; other IPv6 listeners do not.
  const int ipv6_alone =
      where.ai_family == AF_INET6 &&
      !IN6_IS_ADDR_UNSPECIFIED(
          &reinterpret_cast<sockaddr_in6*>(where.ai_addr)->sin6_addr);
  // Allows a port in TIME_WAIT. Connections inherit TCP_NODELAY and the buffer.
  const bool listens =
      setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      setsockopt(handle, SOL_SOCKET, SO_REUSEPORT, &shares, sizeof(shares)) ==
          0 &&
      setsockopt(handle, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
      setsockopt(handle, SOL_SOCKET, SO_RCVBUF, &kReceiveBuffer,
                 sizeof(kReceiveBuffer)) == 0 &&
      (where.ai_family != AF_INET6 ||
       setsockopt(handle, IPPROTO_IPV6, IPV6_V6ONLY, &ipv6_alone,
                  sizeof(ipv6_alone)) == 0) &&
      bind(handle, where.ai_addr, where.ai_addrlen) == 0 &&
      listen(handle, kBacklog) == 0;
  if (listens) return handle;
  const int why = errno;
  close(handle);
  errno = why;
  return -1;
}

// The caller's name as gRPC writes it: "ipv4:10.0.0.2:41234",
// "ipv6:%5B::1%5D:41234".
std::string peer_of(const sockaddr_storage& name) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const auto ipv4 = [&](const void* address, uint16_t port) {
    inet_ntop(AF_INET, address, text.data(), text.size());
    return cat("ipv4:", text.data(), ":", ntohs(port));
  };
  if (name.ss_family == AF_INET) {
    const auto& name4 = reinterpret_cast<const sockaddr_in&>(name);
    return ipv4(&name4.sin_addr, name4.sin_port);
  }
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(name);
  if (IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr)) {
    return ipv4(&ipv6.sin6_addr.s6_addr[12], ipv6.sin6_port);
  }
  inet_ntop(AF_INET6, &ipv6.sin6_addr, text.data(), text.size());
  const std::string scope =
      ipv6.sin6_scope_id == 0 ? "" : cat("%25", ipv6.sin6_scope_id);
  return cat("ipv6:%5B", text.data(), scope, "%5D:", ntohs(ipv6.sin6_port));
}

// The connection is readable again when it has `least` bytes.
void wake_at(int descriptor, size_t least) {
  const auto bytes = static_cast<int>(least);
  setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

// Closes the connection with a reset, which leaves no TIME_WAIT.
void drop(int descriptor) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(descriptor);
}

}  // namespace

FrontDoor::FrontDoor(ListenAddress& address, Connections& connections,
                     const Clock& clock, Port port)
    : connections_(connections),
      clock_(clock),
      reads_greetings_(port.reads_greetings),
      token_(std::move(port.token)) {
  // Two coordinators on one port would each get only a part of the workers.
  std::string why;
  if (port.shares_port && !port.is_held) why = binding_error(address);
  if (!why.empty()) throw cannot_listen(address, why);
  const Addresses found = resolved(address, &why);
  if (!found) throw cannot_listen(address, why);
  for (const addrinfo* next = found.get(); next != nullptr;
       next = next->ai_next) {
    set_port(next->ai_addr, address.port);
    const int listener = listener_at(*next, port.shares_port);
    if (listener < 0) {
      if (why.empty()) why = std::strerror(errno);
      continue;
    }
    listeners_.push_back(listener);
    address.port = port_of(listener);
  }
  if (listeners_.empty()) throw cannot_listen(address, why);
}

void FrontDoor::open(Serve serve, Refused refused) {
  serve_ = std::move(serve);
  refused_ = std::move(refused);
  thread_ = std::thread([this] { run(); });
}

void FrontDoor::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  for (const int listener : listeners_) close(listener);
  listeners_.clear();
  for (const Newcomer& newcomer : newcomers_) drop(newcomer.descriptor);
  newcomers_.clear();
}

void FrontDoor::run() {
  TimePoint swept = clock_.now();
  while (!stopping_) {
    std::vector<pollfd> waiting;
    for (const int listener : listeners_) {
      waiting.push_back({.fd = listener, .events = POLLIN, .revents = 0});
    }
    for (const Newcomer& newcomer : newcomers_) {
      waiting.push_back(
          {.fd = newcomer.descriptor,
           .events = static_cast<short>(
               newcomer.is_refused || newcomer.is_welcome ? POLLRDHUP
                                                          : POLLIN | POLLRDHUP),
           .revents = 0});
    }
    poll(waiting.data(), waiting.size(), kTickMs);
    std::vector<Newcomer> still;
    for (size_t i = 0; i < newcomers_.size(); ++i) {
      Newcomer& newcomer = newcomers_[i];
      const int news = waiting[listeners_.size() + i].revents;
      const bool has_hung_up = (news & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
      if (newcomer.is_welcome) {
        if (serves(newcomer)) continue;
      } else if (news != 0 && !newcomer.is_refused &&
                 !waits_after_look(newcomer)) {
        continue;
      }
      if (has_hung_up) {  // the client will send nothing more
        connections_.end(newcomer.peer, "broken handshake");
        close(newcomer.descriptor);
      } else {
        still.push_back(newcomer);
      }
    }
    newcomers_ = std::move(still);
    constexpr int kAtOnce = 64;
    for (const int listener : listeners_) {
      for (int i = 0; i < kAtOnce && take_one(listener); ++i) {
      }
    }
    if (clock_.now() - swept < std::chrono::milliseconds(kTickMs)) continue;
    swept = clock_.now();
    for (const auto& [why, count] : connections_.sweep(swept)) {
      for (int64_t i = 0; i < count; ++i) refused_(why);
    }
  }
}

bool FrontDoor::serves(const Newcomer& newcomer) {
  if (!connections_.may_serve(clock_.now(), newcomer.peer,
                              newcomer.descriptor)) {
    return false;
  }
  wake_at(newcomer.descriptor, 1);
  serve_(newcomer.listener, newcomer.descriptor);
  return true;
}

bool FrontDoor::waits_after_look(Newcomer& newcomer) {
  std::array<char, kMostGreeting> bytes;
  // MSG_PEEK leaves the bytes in the socket, because gRPC reads them too.
  const ssize_t count = recv(newcomer.descriptor, bytes.data(), bytes.size(),
                             MSG_PEEK | MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  const size_t size = count > 0 ? static_cast<size_t>(count) : 0;
  const auto [greeting, stream] = read_greeting({bytes.data(), size}, token_);
  if (size > 0 && greeting == Greeting::kWelcome) {
    newcomer.is_welcome = true;
    return !serves(newcomer);
  }
  if (size > 0 && greeting == Greeting::kWrongToken) {
    const std::string why = to_string(RefusalKind::kWrongToken);
    const std::string answer = refusal_frame(stream, why);
    (void)!send(newcomer.descriptor, answer.data(), answer.size(),
                MSG_NOSIGNAL | MSG_DONTWAIT);
    connections_.note_refused(newcomer.peer, why);
    newcomer.is_refused = true;
    return true;
  }
  if (size > 0 && size < bytes.size() && greeting == Greeting::kIncomplete) {
    wake_at(newcomer.descriptor, size + 1);
    return true;
  }
  // The client closed the connection without sending a byte. sweep() decides
  // whether to count this as a fault.
  if (size > 0) {
    connections_.end(newcomer.peer, greeting == Greeting::kIncomplete
                                        ? "flood"
                                        : "broken handshake");
  }
  close(newcomer.descriptor);
  return false;
}

bool FrontDoor::take_one(int listener) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  const int descriptor = accept4(listener, reinterpret_cast<sockaddr*>(&name),
                                 &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (descriptor < 0) {
    // If no descriptor is free, the connection waits in the kernel's queue.
    const bool has_none = errno == EMFILE || errno == ENFILE;
    if (has_none && !connections_.make_room()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kTickMs));
    }
    return false;
  }
  const std::string peer = peer_of(name);
  const std::string why = connections_.add(clock_.now(), descriptor, peer);
  if (!why.empty()) {
    drop(descriptor);
    refused_(why);
  } else if (!reads_greetings_) {
    serve_(listener, descriptor);
  } else {
    const std::string settings = settings_frame();
    (void)!send(descriptor, settings.data(), settings.size(),
                MSG_NOSIGNAL | MSG_DONTWAIT);
    newcomers_.push_back({listener, descriptor, peer});
  }
  return true;
}

}  // namespace headroom::coordinator
