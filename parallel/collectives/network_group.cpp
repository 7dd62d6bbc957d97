#include "parallel/collectives/network_group.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/text.h"

namespace headroom::collectives {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kStagingBytes = 256 << 10;

uint64_t id_of(const std::string& name) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  return hash;
}

std::string closed_by(int peer) {
  return cat("rank ", peer, " has closed its connection");
}

// Returns the number of bytes moved, 0 if the socket is not ready. Throws if
// the connection has ended.
size_t moved(ssize_t count, int peer) {
  if (count > 0) return static_cast<size_t>(count);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  throw std::runtime_error(count == 0 || errno == ECONNRESET || errno == EPIPE
                               ? closed_by(peer)
                               : cat("the connection with rank ", peer,
                                     " has failed: ", std::strerror(errno)));
}

// `flags`: MSG_MORE if more data follows at once, to send both in one segment.
size_t send_some(int socket, Bytes bytes, int peer, int flags = 0) {
  if (bytes.empty()) return 0;
  return moved(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | flags),
               peer);
}

size_t receive_some(int socket, Bytes bytes, int peer) {
  if (bytes.empty()) return 0;
  return moved(::recv(socket, bytes.data(), bytes.size(), 0), peer);
}

}  // namespace

void Operation::finish(const std::string& failure) {
  const std::lock_guard lock(mutex_);
  is_done_ = true;
  failure_ = failure;
  changed_.notify_all();
}

NetworkGroup::NetworkGroup(GroupMembers members, milliseconds timeout)
    : members_(std::move(members)),
      id_(id_of(members_.name)),
      timeout_(timeout),
      opening_(std::make_unique<TensorPort::Opening>(*members_.port)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  machines_.leaders.resize(members_.world_ranks.size());
  std::iota(machines_.leaders.begin(), machines_.leaders.end(), 0);
  members_.port->attach(id_, [this](int peer, Channel channel, Socket socket) {
    keep(peer, channel, std::move(socket));
  });
  try {
    connect();
  } catch (...) {
    members_.port->leave(id_);
    throw;
  }
  if (members_.is_full_mesh) opening_.reset();
}

NetworkGroup::~NetworkGroup() {
  members_.port->leave(id_);
  fail("this rank left its peers");
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  wake();
  if (collectives_.joinable()) collectives_.join();
  if (messages_.joinable()) messages_.join();
}

// --- connecting --------------------------------------------------------------

void NetworkGroup::connect() {
  std::set<std::pair<int, Channel>> wanted;
  for (int distance = 1; distance < size(); distance *= 2) {
    wanted.emplace((rank() + distance) % size(), Channel::kCollectives);
    wanted.emplace((rank() + size() - distance) % size(),
                   Channel::kCollectives);
  }
  for (int peer = 0; peer < size() && members_.is_full_mesh; ++peer) {
    if (peer != rank()) wanted.emplace(peer, Channel::kMessages);
  }
  connect_or_throw({wanted.begin(), wanted.end()});
}

void NetworkGroup::use(SharedGroup::Machines machines,
                       const std::vector<int>& partners) {
  Wanted wanted;
  {
    const std::lock_guard lock(mutex_);
    machines_ = std::move(machines);
    for (const int peer : partners) {
      const std::pair one(peer, Channel::kCollectives);
      if (!by_peer_.contains(one)) wanted.push_back(one);
    }
  }
  connect_or_throw(wanted);
}

void NetworkGroup::connect_or_throw(const Wanted& wanted) {
  const PeerWait visible;
  const AbortableWait abortable([this] { fail("aborted: a peer is lost"); });
  try {
    connect_with(wanted);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  if (has_failed()) {
    throw CommunicationError(
        cat("rank ", rank(), " of ", size(), ", connecting: ", reason()));
  }
}

// Of two ranks, the one with the higher number connects to the other.
void NetworkGroup::connect_with(const Wanted& wanted) {
  PeerPatience patience(timeout_, Clock::now());
  const auto is_over = [&] {
    if (patience.is_over(Clock::now(), PeerNews::a_peer_works())) {
      fail(cat("timed out after ", timeout_.count(), " ms"));
    }
    return has_failed();
  };
  // Send all greetings before waiting for the first answer.
  std::vector<Socket> made;
  for (const auto& [peer, channel] : wanted) {
    if (peer > rank()) continue;
    made.push_back(
        members_.port->connect(members_.world_ranks[static_cast<size_t>(peer)],
                               id_, rank(), channel, is_over));
  }
  size_t next = 0;
  for (const auto& [peer, channel] : wanted) {
    if (peer > rank()) continue;
    if (!has_failed()) {
      keep(peer, channel,
           welcomed(peer, channel, std::move(made[next++]), is_over));
    }
  }
  std::unique_lock lock(mutex_);
  for (const auto& one : wanted) {
    while (!by_peer_.contains(one)) {
      if (changed_.wait_for(lock, milliseconds(50)) ==
          std::cv_status::no_timeout) {
        continue;
      }
      lock.unlock();
      if (is_over()) return;
      lock.lock();
    }
  }
}

void NetworkGroup::keep(int peer, Channel channel, Socket socket) {
  if (!socket.is_open()) return;
  {
    const std::lock_guard lock(mutex_);
    if (has_failed_) return;
    by_peer_[{peer, channel}] = socket.get();
    sockets_.push_back(std::move(socket));
  }
  changed_.notify_all();
  wake();
}

// Returns the connection once the peer has answered. A greeting that arrived in
// pieces, which a lossy network can cause, is sent again.
Socket NetworkGroup::welcomed(int peer, Channel channel, Socket socket,
                              const std::function<bool()>& is_over) {
  constexpr int kTries = 4;
  for (int tries = 1; !has_failed(); ++tries) {
    if (!socket.is_open()) socket = connect_to(peer, channel, is_over);
    if (TensorPort::is_welcome(socket, is_over)) return socket;
    if (tries == kTries) throw std::runtime_error(closed_by(peer));
    std::this_thread::sleep_for(milliseconds(20));
    socket = Socket();
  }
  return {};
}

Socket NetworkGroup::connect_to(int peer, Channel channel,
                                const std::function<bool()>& is_over) const {
  return members_.port->connect(members_.world_ranks[static_cast<size_t>(peer)],
                                id_, rank(), channel, is_over);
}

// The socket of a connection, or -1 if the peer has not connected yet.
int NetworkGroup::connected(int peer, Channel channel) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_peer_.find({peer, channel});
    if (found != by_peer_.end()) return found->second;
  }
  if (peer > rank()) return -1;
  Socket socket = welcomed(peer, channel, {}, [this] { return has_failed(); });
  const int made = socket.get();
  keep(peer, channel, std::move(socket));
  return made;
}

// --- failure -----------------------------------------------------------------

void NetworkGroup::fail(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (has_failed_) return;
    reason_ = reason;
    has_failed_ = true;
    // Ends all waits on these sockets.
    for (const Socket& socket : sockets_) shutdown(socket.get(), SHUT_RDWR);
    if (machines_.here != nullptr) machines_.here->abort(reason);
  }
  changed_.notify_all();
  wake();
}

std::string NetworkGroup::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void NetworkGroup::wake() const { eventfd_write(wake_.get(), 1); }

void NetworkGroup::await(Operation& operation, const char* name) {
  std::string failure;
  {
    const AbortableWait abortable([this] { fail("aborted: a peer is lost"); });
    PeerPatience patience(timeout_, Clock::now());
    constexpr milliseconds kLook(100);
    std::unique_lock lock(operation.mutex_);
    const auto is_done = [&] { return operation.is_done_; };
    while (!operation.changed_.wait_for(lock, std::min(kLook, timeout_),
                                        is_done)) {
      if (!patience.is_over(Clock::now(), PeerNews::a_peer_works())) continue;
      lock.unlock();
      fail(timed_out(operation));
      lock.lock();
    }
    failure = operation.failure_;
  }
  if (failure.empty()) return;
  throw CommunicationError(
      cat("rank ", rank(), " of ", size(), ", ", name, ": ", failure));
}

std::string NetworkGroup::timed_out(const Operation& operation) const {
  const std::string text = cat("timed out after ", timeout_.count(), " ms");
  int awaited = operation.awaited_;
  if (awaited < 0 && machine() != nullptr) awaited = machine()->awaited();
  return awaited < 0 ? text : cat(text, ", waiting for rank ", awaited);
}

// --- collectives -------------------------------------------------------------

NetworkGroup::Handle NetworkGroup::collective(std::function<void()> body) {
  auto operation = std::make_shared<Operation>();
  {
    const std::lock_guard lock(mutex_);
    if (has_failed_) {
      operation->finish(reason_);
      return operation;
    }
    tasks_.push_back({std::move(body), operation});
    if (!collectives_.joinable()) {
      collectives_ = std::thread([this] { run_collectives(); });
    }
  }
  changed_.notify_all();
  return operation;
}

void NetworkGroup::run_collectives() {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    running_ = task.operation.get();
    try {
      if (!has_failed()) task.body();
    } catch (const std::exception& error) {
      fail(error.what());
    }
    task.body = nullptr;
    task.operation->finish(has_failed() ? reason() : "");
  }
}

int NetworkGroup::collective_socket(int peer) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_peer_.find({peer, Channel::kCollectives});
  HEADROOM_CHECK(found != by_peer_.end(),
                 cat("no connection with rank ", peer));
  return found->second;
}

// Records which rank the running collective waits for, for error messages; -1
// for none.
void NetworkGroup::note_wait(int peer) {
  running_->awaited_ = peer;
  if (machine() != nullptr) machine()->note_wait(peer);
}

void NetworkGroup::exchange(int to, Bytes out, int from, size_t size,
                            const Take& take) {
  note_wait(size == 0 ? to : from);
  piece_.resize(kStagingBytes);
  const int target = out.empty() ? -1 : collective_socket(to);
  const int source = size == 0 ? -1 : collective_socket(from);
  size_t taken = 0, filled = 0;
  while (!out.empty() || taken < size) {
    if (has_failed()) throw std::runtime_error(reason());
    const size_t sent = send_some(target, out, to);
    out = out.subspan(sent);
    const size_t wanted = std::min(kStagingBytes, size - taken);
    const size_t came = receive_some(
        source, Bytes(piece_).subspan(filled, wanted - filled), from);
    filled += came;
    if (wanted > 0 && filled == wanted) {
      take(taken, Bytes(piece_).first(filled));
      taken += filled;
      filled = 0;
    }
    if (sent > 0 || came > 0) continue;
    pollfd waiting[] = {{out.empty() ? -1 : target, POLLOUT, 0},
                        {taken < size ? source : -1, POLLIN, 0}};
    poll(waiting, 2, -1);
  }
  note_wait(-1);
}

void NetworkGroup::exchange(int to, Bytes out, int from, Bytes in,
                            const Look& look) {
  note_wait(in.empty() ? to : from);
  const Bytes all = in;
  const int target = out.empty() ? -1 : collective_socket(to);
  const int source = in.empty() ? -1 : collective_socket(from);
  while (!out.empty() || !in.empty()) {
    if (has_failed()) throw std::runtime_error(reason());
    const size_t sent = send_some(target, out, to);
    const size_t came = receive_some(source, in, from);
    out = out.subspan(sent);
    in = in.subspan(came);
    if (came > 0 && look) look(all.first(all.size() - in.size()));
    if (sent > 0 || came > 0) continue;
    pollfd waiting[] = {{out.empty() ? -1 : target, POLLOUT, 0},
                        {in.empty() ? -1 : source, POLLIN, 0}};
    poll(waiting, 2, -1);
  }
  note_wait(-1);
}

// --- messages ----------------------------------------------------------------

NetworkGroup::Handle NetworkGroup::send(const at::Tensor& tensor, int to) {
  return issue(Message(true, to, tensor));
}

NetworkGroup::Handle NetworkGroup::receive(const at::Tensor& tensor, int from) {
  return issue(Message(false, from, tensor));
}

NetworkGroup::Handle NetworkGroup::issue(Message message) {
  auto operation = std::make_shared<Operation>();
  operation->awaited_ = message.peer;
  message.operation = operation;
  {
    const std::lock_guard lock(mutex_);
    if (has_failed_) {
      operation->finish(reason_);
      return operation;
    }
    issued_.push_back(std::move(message));
    if (!messages_.joinable()) {
      messages_ = std::thread([this] { run_messages(); });
    }
  }
  wake();
  return operation;
}

void NetworkGroup::run_messages() {
  std::map<int, Link> links;
  for (;;) {
    take_news(links);
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_ && issued_.empty()) return;
    }
    try {
      move_messages(links);
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }
}

// Moves newly issued messages to their links. If the group has failed, ends all
// messages with the reason.
void NetworkGroup::take_news(std::map<int, Link>& links) {
  std::vector<Message> issued;
  {
    const std::lock_guard lock(mutex_);
    issued.swap(issued_);
  }
  for (Message& message : issued) {
    Link& link = links[message.peer];
    (message.is_sent ? link.sends : link.receives)
        .push_back(std::move(message));
  }
  if (!has_failed()) return;
  for (auto& [peer, link] : links) {
    for (auto* messages : {&link.sends, &link.receives}) {
      while (!messages->empty()) {
        const Handle operation = messages->front().operation;
        messages->pop_front();
        operation->finish(reason());
      }
    }
  }
}

// Sends and receives all data for which a socket is ready. If no socket is
// ready, waits for one first.
void NetworkGroup::move_messages(std::map<int, Link>& links) {
  std::vector<pollfd> waiting = {{wake_.get(), POLLIN, 0}};
  std::vector<int> peers = {-1};
  for (auto& [peer, link] : links) {
    if (link.is_idle()) continue;
    if (link.socket < 0) link.socket = connected(peer, Channel::kMessages);
    if (link.socket < 0) continue;
    const int events = (link.sends.empty() ? 0 : POLLOUT) |
                       (link.receives.empty() ? 0 : POLLIN);
    waiting.push_back({link.socket, static_cast<short>(events), 0});
    peers.push_back(peer);
  }
  poll(waiting.data(), waiting.size(), -1);
  eventfd_t unused = 0;
  eventfd_read(wake_.get(), &unused);
  for (size_t i = 1; i < waiting.size(); ++i) {
    if (waiting[i].revents != 0) pump(links[peers[i]], peers[i]);
  }
}

void NetworkGroup::pump(Link& link, int peer) {
  for (auto* messages : {&link.sends, &link.receives}) {
    while (!messages->empty() && move(messages->front(), link.socket, peer)) {
      const Handle operation = messages->front().operation;
      messages->pop_front();
      operation->finish("");
    }
  }
}

// Returns true when the whole message is moved. Its length is sent first.
bool NetworkGroup::move(Message& message, int socket, int peer) {
  const auto some = [&](Bytes bytes, int how) {
    return message.is_sent ? send_some(socket, bytes, peer, how)
                           : receive_some(socket, bytes, peer);
  };
  constexpr size_t kLength = sizeof(message.length);
  const Bytes length = std::as_writable_bytes(std::span(&message.length, 1));
  // An empty message has no data after its length; with MSG_MORE, the kernel
  // would wait 200 ms for data.
  const int flags = message.bytes.empty() ? 0 : MSG_MORE;
  while (message.done < kLength) {
    const size_t count = some(length.subspan(message.done), flags);
    if (count == 0) return false;
    message.done += count;
  }
  if (message.length != message.bytes.size()) {
    throw std::runtime_error(cat("rank ", peer, " sends ", message.length,
                                 " bytes where ", message.bytes.size(),
                                 " are expected"));
  }
  while (message.done < kLength + message.bytes.size()) {
    const size_t count = some(message.bytes.subspan(message.done - kLength), 0);
    if (count == 0) return false;
    message.done += count;
  }
  return true;
}

}  // namespace headroom::collectives
