#include "parallel/collectives/tensor_port.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::collectives {
namespace {

constexpr int kBacklog = 4096;
constexpr int kLookMs = 50;
// An address is its kind, followed by the bytes of a sockaddr (TCP) or the path
// of a Unix socket.
constexpr char kTcp = 't';
constexpr char kUnix = 'u';

struct Name {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&bytes);
  }
};

Name name_of_path(const std::string& path) {
  Name name;
  auto& unix_name = reinterpret_cast<sockaddr_un&>(name.bytes);
  if (path.size() >= sizeof(unix_name.sun_path)) {
    throw Error("gloo", path + " is too long for a socket",
                "name a shorter folder with TMPDIR");
  }
  unix_name.sun_family = AF_UNIX;
  path.copy(unix_name.sun_path, path.size());
  name.size = sizeof(unix_name);
  return name;
}

Error cannot_listen(const std::string& host, const std::string& why) {
  return Error("gloo", "cannot listen on '" + host + "': " + why,
               "give a name or address of this machine");
}

Name resolved(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), "0", &hints, &found);
  if (failure != 0) throw cannot_listen(host, gai_strerror(failure));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found,
                                                                 freeaddrinfo);
  Name name;
  std::memcpy(&name.bytes, found->ai_addr, found->ai_addrlen);
  name.size = found->ai_addrlen;
  return name;
}

std::string text_of(const Name& name) {
  if (name.bytes.ss_family == AF_UNIX) {
    return kUnix +
           std::string(
               reinterpret_cast<const sockaddr_un&>(name.bytes).sun_path);
  }
  return kTcp +
         std::string(reinterpret_cast<const char*>(&name.bytes), name.size);
}

Name name_of_text(const std::string& text) {
  Name name;
  HEADROOM_CHECK(!text.empty() && text.size() - 1 <= sizeof(name.bytes),
                 "a rank's address");
  if (text[0] == kUnix) return name_of_path(text.substr(1));
  name.size = static_cast<socklen_t>(text.size() - 1);
  text.copy(reinterpret_cast<char*>(&name.bytes), name.size, 1);
  return name;
}

void send_at_once(int socket) {
  // Fails on a Unix socket, which has no TCP_NODELAY; the error is ignored.
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Waits until the socket is ready for `events` or has an error.
bool is_ready(int socket, short events, const std::function<bool()>& is_over) {
  pollfd waiting{socket, events, 0};
  while (!is_over()) {
    if (poll(&waiting, 1, kLookMs) == 1) return true;
  }
  return false;
}

bool is_connected(int socket, const Name& to,
                  const std::function<bool()>& is_over) {
  if (::connect(socket, to.get(), to.size) == 0) return true;
  if (errno != EINPROGRESS || !is_ready(socket, POLLOUT, is_over)) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  return error == 0;
}

}  // namespace

Socket::Socket(Socket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Socket::~Socket() {
  if (is_open()) close(descriptor_);
}

// The first bytes sent on a connection. All ranks run the same build, on
// machines of the same byte order.
struct TensorPort::Greeting {
  Secret secret{};
  uint64_t group = 0;
  int32_t rank = 0;
  Channel channel = Channel::kCollectives;
};

TensorPort::TensorPort(const std::string& host) {
  Name name;
  if (host.starts_with('/')) {
    static std::atomic<int> num_ports = 0;
    path_ = cat(host, "/", getpid(), "-", ++num_ports);
    name = name_of_path(path_);
  } else {
    name = resolved(host);
  }
  constexpr int kPatienceS = 1;
  listener_ = Socket(socket(name.bytes.ss_family,
                            SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const bool defers = !path_.empty() ||
                      setsockopt(listener_.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT,
                                 &kPatienceS, sizeof(kPatienceS)) == 0;
  if (!wake_.is_open() || !defers ||
      bind(listener_.get(), name.get(), name.size) != 0) {
    throw cannot_listen(host, std::strerror(errno));
  }
  change(0);
  if (listen(listener_.get(), kBacklog) != 0) {
    throw cannot_listen(host, std::strerror(errno));
  }
  name.size = sizeof(name.bytes);
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name.bytes),
              &name.size);
  address_ = text_of(name);
  thread_ = std::thread([this] { accept_all(); });
}

TensorPort::~TensorPort() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
  if (!path_.empty()) unlink(path_.c_str());
}

void TensorPort::introduce(KeyValueStore& store, const std::string& prefix,
                           int rank, int size,
                           std::chrono::milliseconds timeout) {
  if (rank == 0) {
    Secret drawn;
    HEADROOM_CHECK(getentropy(drawn.data(), drawn.size()) == 0,
                   std::strerror(errno));
    store.set(prefix + "/secret", {drawn.begin(), drawn.end()});
  }
  const std::string told = store.get(prefix + "/secret", timeout);
  HEADROOM_CHECK(told.size() == secret_.size(), cat(told.size(), " bytes"));
  {
    const std::lock_guard lock(mutex_);
    std::copy(told.begin(), told.end(), secret_.begin());
    is_introduced_ = true;
  }
  const std::string port = prefix + "/port/";
  store.set(cat(port, rank), address_);
  // Rank 0 reads all addresses and publishes them as one list: if thousands of
  // ranks read each other's addresses, the store would get too many calls.
  if (rank == 0) {
    std::string ports;
    for (const std::string& address : store.get_all(port, size, timeout)) {
      ports += static_cast<char>(address.size());
      ports += address;
    }
    store.set(prefix + "/ports", ports);
  }
  const std::string ports = store.get(prefix + "/ports", timeout);
  for (size_t at = 0; at < ports.size();) {
    const auto length = static_cast<unsigned char>(ports[at]);
    addresses_.push_back(ports.substr(at + 1, length));
    at += 1 + length;
  }
  HEADROOM_CHECK(addresses_.size() == static_cast<size_t>(size),
                 cat(addresses_.size(), " ports"));
}

TensorPort::Greeting TensorPort::greeting(uint64_t group, int rank,
                                          Channel channel) const {
  const std::lock_guard lock(mutex_);
  return {secret_, group, rank, channel};
}

Socket TensorPort::connect(int world_rank, uint64_t group, int own_rank,
                           Channel channel,
                           const std::function<bool()>& is_over) const {
  const Name to = name_of_text(addresses_.at(static_cast<size_t>(world_rank)));
  const Greeting hello = greeting(group, own_rank, channel);
  static_assert(std::is_trivially_copyable_v<Greeting>);
  while (!is_over()) {
    Socket made(::socket(to.bytes.ss_family,
                         SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made.is_open()) {
      throw CommunicationError(std::string("no socket is left: ") +
                               std::strerror(errno));
    }
    send_at_once(made.get());
    if (is_connected(made.get(), to, is_over) &&
        send(made.get(), &hello, sizeof(hello), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(sizeof(hello))) {
      return made;
    }
    // A rank listens before it publishes its address, so refusing a connection
    // means that it has left.
    if (errno == ECONNREFUSED || errno == ENOENT) {
      throw CommunicationError(
          cat("rank ", world_rank, " of the run has left"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
  }
  return {};
}

bool TensorPort::is_welcome(const Socket& socket,
                            const std::function<bool()>& is_over) {
  char answer = 0;
  return is_ready(socket.get(), POLLIN, is_over) &&
         recv(socket.get(), &answer, 1, 0) == 1;
}

void TensorPort::attach(uint64_t group, Take take) {
  const std::lock_guard lock(mutex_);
  for (auto& [rank, channel, socket] : early_[group]) {
    take(rank, channel, std::move(socket));
  }
  early_.erase(group);
  groups_[group] = std::move(take);
}

void TensorPort::leave(uint64_t group) {
  const std::lock_guard lock(mutex_);
  groups_.erase(group);
  left_.insert(group);
}

void TensorPort::accept_all() {
  pollfd waiting[] = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  for (;;) {
    poll(waiting, 2, -1);
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_) return;
    }
    accept_one();
  }
}

void TensorPort::accept_one() {
  Socket socket(::accept4(listener_.get(), nullptr, nullptr,
                          SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.is_open()) {
    // Connections of other programs may have used up the descriptors.
    const bool is_full = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    if (is_full)
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    return;
  }
  // A TCP connection is accepted when its first segment, the whole greeting,
  // has arrived. A Unix socket is accepted before its data arrives, but only
  // processes of this run can connect to it.
  pollfd greeted{socket.get(), POLLIN, 0};
  if (!path_.empty()) poll(&greeted, 1, 1000);
  Greeting hello;
  if (recv(socket.get(), &hello, sizeof(hello), 0) !=
      static_cast<ssize_t>(sizeof(hello))) {
    return;
  }
  const std::lock_guard lock(mutex_);
  // Compare in constant time.
  int difference = is_introduced_ ? 0 : 1;
  for (size_t i = 0; i < secret_.size(); ++i) {
    difference |= hello.secret[i] ^ secret_[i];
  }
  if (difference != 0 || left_.contains(hello.group)) return;
  send_at_once(socket.get());
  const char welcome = 1;
  if (send(socket.get(), &welcome, 1, MSG_NOSIGNAL) != 1) return;
  const auto group = groups_.find(hello.group);
  if (group != groups_.end()) {
    group->second(hello.rank, hello.channel, std::move(socket));
  } else {
    early_[hello.group].emplace_back(hello.rank, hello.channel,
                                     std::move(socket));
  }
}

void TensorPort::change(int openings) {
  const std::lock_guard lock(mutex_);
  openings_ += openings;
  if (!path_.empty()) return;
  if (openings_ > 0) {
    const int unused = 0;
    setsockopt(listener_.get(), SOL_SOCKET, SO_DETACH_FILTER, &unused,
               sizeof(unused));
    return;
  }
  sock_filter drop_all = {BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program = {1, &drop_all};
  setsockopt(listener_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program,
             sizeof(program));
}

}  // namespace headroom::collectives
