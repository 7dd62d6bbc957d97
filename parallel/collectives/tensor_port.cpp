#include "parallel/collectives/tensor_port.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::collectives {
namespace {

using Secret = TensorPort::Secret;
using GroupSecret = TensorPort::GroupSecret;

// What accept() and connect() below look up. Never destroyed: Gloo's threads
// may outlive the statics.
class KnownSockets {
 public:
  static KnownSockets& instance() {
    static auto* const known = new KnownSockets;
    return *known;
  }

  // Returns the socket's inode.
  ino_t add_listener(int socket, std::weak_ptr<const GroupSecret> secret) {
    const std::lock_guard lock(mutex_);
    const ino_t inode = inode_of(socket);
    listeners_[socket] = {inode, std::move(secret)};
    return inode;
  }
  void remove_listener(int socket, ino_t inode) {
    const std::lock_guard lock(mutex_);
    const auto found = listeners_.find(socket);
    if (found != listeners_.end() && found->second.inode == inode) {
      listeners_.erase(found);
    }
  }
  // Ranks that are threads of one process each know the same ports.
  void add_peers(const std::vector<PortAddress>& addresses,
                 const std::weak_ptr<const GroupSecret>& secret) {
    const std::lock_guard lock(mutex_);
    std::erase_if(peers_,
                  [](const auto& peer) { return peer.second.expired(); });
    for (const PortAddress& address : addresses) {
      peers_.emplace(address, secret);
    }
  }

  // Gloo closes its sockets by itself, and their numbers are given out again.
  void add_connection(int socket, const Secret& secret) {
    const std::lock_guard lock(mutex_);
    if (connections_.size() >= prune_at_) {
      std::erase_if(connections_, [](const auto& one) {
        return one.second.inode != inode_of(one.first);
      });
      prune_at_ = std::max(kPruneAt, 2 * connections_.size());
    }
    connections_[socket] = {inode_of(socket), secret};
  }
  // Those with this secret; null: all.
  void cut_connections(const Secret* secret) {
    const std::lock_guard lock(mutex_);
    std::erase_if(connections_, [secret](const auto& one) {
      const auto& [socket, connection] = one;
      if (secret != nullptr && connection.secret != *secret) return false;
      if (connection.inode != 0 && connection.inode == inode_of(socket)) {
        shutdown(socket, SHUT_RDWR);
      }
      return true;
    });
  }

  bool is_listener(int socket) const {
    const std::lock_guard lock(mutex_);
    return listeners_.contains(socket);
  }
  // Null: nobody may connect yet.
  std::shared_ptr<const GroupSecret> of_listener(int socket) const {
    const std::lock_guard lock(mutex_);
    const auto found = listeners_.find(socket);
    return found == listeners_.end() ? nullptr : found->second.secret.lock();
  }
  // Null for an address that is no rank's.
  std::shared_ptr<const GroupSecret> of_peer(const PortAddress& address) const {
    const std::lock_guard lock(mutex_);
    // A port's number may be given out again: the newest group counts.
    const auto [begin, end] = peers_.equal_range(address);
    for (auto peer = end; peer != begin;) {
      if (auto secret = (--peer)->second.lock()) return secret;
    }
    return nullptr;
  }

 private:
  // 0 for what is no socket. No two sockets have one at a time.
  static ino_t inode_of(int socket) {
    struct stat status {};
    return ::fstat(socket, &status) == 0 && S_ISSOCK(status.st_mode)
               ? status.st_ino
               : 0;
  }

  struct Listener {
    ino_t inode = 0;
    std::weak_ptr<const GroupSecret> secret;
  };
  struct Between {
    ino_t inode = 0;
    Secret secret{};
  };
  static constexpr size_t kPruneAt = 256;

  mutable std::mutex mutex_;
  std::map<int, Between> connections_;  // those between ranks
  size_t prune_at_ = kPruneAt;
  std::map<int, Listener> listeners_;
  std::multimap<PortAddress, std::weak_ptr<const GroupSecret>> peers_;
};

// "" for what is not TCP over IP.
PortAddress key_of(const sockaddr* name, socklen_t size) {
  if (name == nullptr) return "";
  PortAddress key;
  const auto add = [&key](const auto& part) {
    key.append(reinterpret_cast<const char*>(&part), sizeof(part));
  };
  if (name->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in v4;
    std::memcpy(&v4, name, sizeof(v4));
    add(v4.sin_addr);
    add(v4.sin_port);
  } else if (name->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 v6;
    std::memcpy(&v6, name, sizeof(v6));
    add(v6.sin6_addr);
    add(v6.sin6_port);
  }
  return key;
}

std::vector<int> listening_sockets() {
  std::vector<int> sockets;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int descriptor = std::stoi(entry.path().filename().string());
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) ==
            0 &&
        listens != 0) {
      sockets.push_back(descriptor);
    }
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

// It was sent in one piece, and is there whole or not at all.
bool presents(int descriptor, const Secret& secret) {
  Secret said{};
  if (recv(descriptor, said.data(), said.size(), MSG_DONTWAIT) !=
      static_cast<ssize_t>(said.size())) {
    return false;
  }
  // The comparison takes equally long wherever they differ.
  int difference = 0;
  for (size_t i = 0; i < said.size(); ++i) difference |= said[i] ^ secret[i];
  return difference == 0;
}

// accept4(2) of a rank. Of its failures Gloo bears EAGAIN only.
int accept_rank(int listener, sockaddr* name, socklen_t* size, int flags) {
  const auto descriptor =
      static_cast<int>(syscall(SYS_accept4, listener, name, size, flags));
  if (descriptor < 0) {
    if (errno != EINTR) errno = EAGAIN;
    return -1;
  }
  const auto secret = KnownSockets::instance().of_listener(listener);
  if (secret && presents(descriptor, secret->bytes)) {
    KnownSockets::instance().add_connection(descriptor, secret->bytes);
    return descriptor;
  }
  close(descriptor);
  errno = EAGAIN;
  return -1;
}

int accept_any(int listener, sockaddr* name, socklen_t* size, int flags) {
  if (KnownSockets::instance().is_listener(listener)) {
    return accept_rank(listener, name, size, flags);
  }
  return static_cast<int>(syscall(SYS_accept4, listener, name, size, flags));
}

// The connection goes on without the secret, and is refused, if a rank's
// machine does not answer for so long.
constexpr int kLongestConnectMs = 10'000;

bool is_connected_soon(int descriptor, const GroupSecret& secret) {
  constexpr int kPauseMs = 50;
  pollfd waiting{descriptor, POLLOUT, 0};
  for (int waited = 0; waited < kLongestConnectMs && !secret.has_ended;
       waited += kPauseMs) {
    if (poll(&waiting, 1, kPauseMs) == 1) return waiting.revents == POLLOUT;
  }
  return false;
}

int connect_any(int descriptor, const sockaddr* name, socklen_t size) {
  const auto secret = KnownSockets::instance().of_peer(key_of(name, size));
  const auto result =
      static_cast<int>(syscall(SYS_connect, descriptor, name, size));
  if (!secret || (result != 0 && errno != EINPROGRESS)) return result;
  KnownSockets::instance().add_connection(descriptor, secret->bytes);
  if (result == 0 || is_connected_soon(descriptor, *secret)) {
    // If it fails the connection did, of which Gloo hears by itself.
    static_cast<void>(!send(descriptor, secret->bytes.data(),
                            secret->bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  errno = EINPROGRESS;
  return result;
}

}  // namespace

TensorPort::TensorPort(const std::function<void()>& listen) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const std::vector<int> before = listening_sockets();
  listen();
  for (const int socket : listening_sockets()) {
    if (!std::binary_search(before.begin(), before.end(), socket)) {
      socket_ = socket;
    }
  }
  constexpr int kPatienceS = 1;
  if (socket_ < 0 || setsockopt(socket_, IPPROTO_TCP, TCP_DEFER_ACCEPT,
                                &kPatienceS, sizeof(kPatienceS)) != 0) {
    throw Error("gloo", "its port cannot be kept from strangers",
                "allow this process to read /proc/self/fd");
  }
  // Programs that this one starts would keep it open.
  fcntl(socket_, F_SETFD, FD_CLOEXEC);
  inode_ = KnownSockets::instance().add_listener(socket_, {});
  change(0);
}

// Groups that are still parked may hold the socket: it stays closed.
TensorPort::~TensorPort() {
  KnownSockets::instance().remove_listener(socket_, inode_);
}

void TensorPort::end_group() {
  KnownSockets::instance().add_listener(socket_, {});
  if (secret_ == nullptr) return;
  secret_->has_ended = true;
  KnownSockets::instance().cut_connections(&secret_->bytes);
}

void TensorPort::cut_connections() {
  KnownSockets::instance().cut_connections(nullptr);
}

std::vector<PortAddress> TensorPort::introduce(
    KeyValueStore& store, const std::string& prefix, int rank, int size,
    std::chrono::milliseconds timeout) {
  if (rank == 0) {
    Secret drawn;
    HEADROOM_CHECK(getentropy(drawn.data(), drawn.size()) == 0,
                   std::strerror(errno));
    store.set(prefix + "/secret", {drawn.begin(), drawn.end()});
  }
  const std::string told = store.get(prefix + "/secret", timeout);
  Secret secret{};
  HEADROOM_CHECK(told.size() == secret.size(), cat(told.size(), " bytes"));
  std::copy(told.begin(), told.end(), secret.begin());
  expect(secret);

  const std::string port = prefix + "/port/";
  store.set(cat(port, rank), own_address());
  // Thousands of ranks do not ask for one another: rank 0 asks for all.
  if (rank == 0) {
    std::string ports;
    for (const std::string& key : store.get_all(port, size, timeout)) {
      ports += static_cast<char>(key.size());
      ports += key;
    }
    store.set(prefix + "/ports", ports);
  }
  const std::string ports = store.get(prefix + "/ports", timeout);
  std::vector<PortAddress> addresses;
  for (size_t at = 0; at < ports.size();) {
    const auto length = static_cast<unsigned char>(ports[at]);
    addresses.push_back(ports.substr(at + 1, length));
    at += 1 + length;
  }
  HEADROOM_CHECK(addresses.size() == static_cast<size_t>(size),
                 cat(addresses.size(), " ports"));
  admit(addresses);
  return addresses;
}

void TensorPort::expect(const Secret& secret) {
  secret_ = std::make_shared<GroupSecret>();
  secret_->bytes = secret;
  KnownSockets::instance().add_listener(socket_, secret_);
}

void TensorPort::admit(const std::vector<PortAddress>& addresses) const {
  KnownSockets::instance().add_peers(addresses, secret_);
}

PortAddress TensorPort::own_address() const {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  getsockname(socket_, reinterpret_cast<sockaddr*>(&name), &size);
  return key_of(reinterpret_cast<const sockaddr*>(&name), size);
}

void TensorPort::change(int openings) {
  const std::lock_guard lock(mutex_);
  openings_ += openings;
  if (openings_ > 0) {
    const int unused = 0;
    setsockopt(socket_, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
    return;
  }
  sock_filter drop_all = {BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program = {1, &drop_all};
  setsockopt(socket_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

}  // namespace headroom::collectives

// LibTorch finds a program's own functions before the C library's.
extern "C" {

int accept(int listener, sockaddr* name, socklen_t* size) {
  return headroom::collectives::accept_any(listener, name, size, 0);
}

int accept4(int listener, sockaddr* name, socklen_t* size, int flags) {
  return headroom::collectives::accept_any(listener, name, size, flags);
}

int connect(int descriptor, const sockaddr* name, socklen_t size) {
  return headroom::collectives::connect_any(descriptor, name, size);
}

}  // extern "C"
