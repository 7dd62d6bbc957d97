#include "coordinator/service/connections.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace headroom::coordinator {
namespace {

// The time from the arrival of bytes to the call made of them.
constexpr std::chrono::milliseconds kOnTheWay{50};
// What a member sends before its first call is let in, with TLS.
constexpr int64_t kBytesOfMember = 16 << 10;
constexpr size_t kMaxKnownHosts = 8192;

std::optional<tcp_info> info_of(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return std::nullopt;
  }
  return info;
}

bool is_open(const tcp_info& info) {
  constexpr int kEstablished = 1;
  return info.tcpi_state == kEstablished;
}

int64_t bytes_of(const tcp_info& info) {
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

}  // namespace

std::string host_of_peer(std::string_view peer) {
  return std::string(peer.substr(0, peer.rfind(':')));
}

ConnectionLimits connection_limits(uint64_t max_descriptors,
                                   int expected_workers) {
  constexpr uint64_t kReserve = 256;
  ConnectionLimits limits;
  // Each may have an agent of its own.
  const size_t members = 2 * static_cast<size_t>(expected_workers);
  limits.connections = std::max(limits.connections, 2 * members);
  limits.strangers = std::max(limits.strangers, members);
  limits.all_strangers_bytes =
      std::max(limits.all_strangers_bytes,
               kBytesOfMember * static_cast<int64_t>(members));
  limits.new_per_second =
      std::max(limits.new_per_second, static_cast<double>(members));
  limits.new_at_once =
      std::max(limits.new_at_once, static_cast<double>(members));
  const uint64_t room =
      max_descriptors > 2 * kReserve ? max_descriptors - kReserve : kReserve;
  limits.connections = std::min<uint64_t>(limits.connections, room / 2);
  const size_t most_strangers = std::max(
      limits.connections / 4, std::min(members, limits.connections / 2));
  limits.strangers = std::min(limits.strangers, most_strangers);
  return limits;
}

Connections::~Connections() {
  for (auto entry = connections_.begin(); entry != connections_.end();) {
    entry = forget(entry);
  }
}

Connections::Host& Connections::host_of(TimePoint now,
                                        const std::string& name) {
  if (hosts_.size() >= kMaxKnownHosts) {
    std::erase_if(hosts_, [&](const auto& entry) {
      return entry.second.strangers == 0 && entry.first != name;
    });
  }
  const auto [entry, is_new] = hosts_.try_emplace(name);
  Host& host = entry->second;
  const double seconds =
      std::chrono::duration<double>(now - host.filled).count();
  host.new_connections =
      is_new
          ? limits_.new_at_once
          : std::min(limits_.new_at_once,
                     host.new_connections + seconds * limits_.new_per_second);
  host.filled = now;
  return host;
}

std::string Connections::add(TimePoint now, int descriptor,
                             const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const std::string name = host_of_peer(peer);
  Host& host = host_of(now, name);
  if (host.new_connections < 1) return "too many new connections";
  --host.new_connections;
  const bool is_full = connections_.size() >= limits_.connections;
  if (is_full || count_locked(Standing::kStranger) >= limits_.strangers) {
    if (!end_a_stranger()) return "too many connections";
  }
  if (const auto old = connections_.find(peer); old != connections_.end()) {
    forget(old);  // it has ended, and its port is in use again
  }
  Connection connection;
  connection.descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (connection.descriptor < 0) return "no descriptor is left";
  connection.host = name;
  connection.since = now;
  connection.last_call = now;
  connection.number = ++num_added_;
  connections_.emplace(peer, std::move(connection));
  ++counts_[static_cast<size_t>(Standing::kStranger)];
  ++hosts_[name].strangers;
  return "";
}

void Connections::note_call(TimePoint now, const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  connection.last_call = now;
  if (connection.standing == Standing::kAdmitted) return;
  connection.standing = Standing::kAdmitted;
  --hosts_[connection.host].strangers;
  --counts_[static_cast<size_t>(Standing::kStranger)];
  ++counts_[static_cast<size_t>(Standing::kAdmitted)];
}

void Connections::note_heartbeat(const std::string& peer,
                                 const std::string& member) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  found->second.member = member;
  peers_[member] = peer;
}

Connections::Entry Connections::forget(Entry entry) {
  Connection& connection = entry->second;
  if (connection.standing == Standing::kStranger) {
    --hosts_[connection.host].strangers;
  }
  --counts_[static_cast<size_t>(connection.standing)];
  const auto peer = peers_.find(connection.member);
  if (peer != peers_.end() && peer->second == entry->first) peers_.erase(peer);
  close(connection.descriptor);
  return connections_.erase(entry);
}

bool Connections::end_a_stranger() {
  Entry oldest = connections_.end();
  const auto strangers_beside = [&](const Entry& entry) {
    return hosts_[entry->second.host].strangers;
  };
  for (auto entry = connections_.begin(); entry != connections_.end();
       ++entry) {
    if (entry->second.standing != Standing::kStranger) continue;
    const bool is_worse =
        oldest == connections_.end() ||
        strangers_beside(entry) > strangers_beside(oldest) ||
        (strangers_beside(entry) == strangers_beside(oldest) &&
         entry->second.since < oldest->second.since);
    if (is_worse) oldest = entry;
  }
  if (oldest == connections_.end()) return false;
  ++ended_["too many connections"];
  shutdown(oldest->second.descriptor, SHUT_RDWR);
  forget(oldest);
  return true;
}

void Connections::make_room() {
  const std::lock_guard lock(mutex_);
  end_a_stranger();
}

std::string Connections::excess_of(TimePoint now, const Connection& connection,
                                   int64_t bytes) const {
  if (connection.standing == Standing::kAdmitted) return "";
  if (bytes > limits_.stranger_bytes) return "flood";
  if (now - connection.since > limits_.stranger_time) {
    return "silent connection";
  }
  return "";
}

// A stranger's connection has ended. It had no certificate, did not use TLS, or
// left: gRPC does not say which. A probe of the port sends nothing and leaves
// at once, and is not counted.
void Connections::note_failure(TimePoint now, const Connection& connection,
                               int64_t bytes) {
  if (bytes > 0) {
    ++ended_["broken handshake"];
  } else if (now - connection.since > kHandshakeTime / 2) {
    ++ended_["silent connection"];
  }
}

std::map<std::string, int64_t> Connections::sweep(TimePoint now) {
  const std::lock_guard lock(mutex_);
  int64_t strangers_bytes = 0;
  ++num_sweeps_;
  for (auto entry = connections_.begin(); entry != connections_.end();) {
    if (entry->second.standing == Standing::kAdmitted &&
        (entry->second.number + num_sweeps_) % kSweepsToAdmitted != 0) {
      ++entry;
      continue;
    }
    const auto info = info_of(entry->second.descriptor);
    if (!info || !is_open(*info)) {
      if (entry->second.standing == Standing::kStranger && info) {
        note_failure(now, entry->second, bytes_of(*info));
      }
      entry = forget(entry);
      continue;
    }
    std::string why = excess_of(now, entry->second, bytes_of(*info));
    if (entry->second.standing == Standing::kStranger) {
      strangers_bytes += bytes_of(*info);
      if (strangers_bytes > limits_.all_strangers_bytes) why = "flood";
    }
    if (why.empty()) {
      ++entry;
      continue;
    }
    ++ended_[why];
    shutdown(entry->second.descriptor, SHUT_RDWR);
    entry = forget(entry);
  }
  return std::exchange(ended_, {});
}

const Connections::Connection* Connections::connection_of(
    const std::string& member) const {
  const auto peer = peers_.find(member);
  if (peer == peers_.end()) return nullptr;
  const auto found = connections_.find(peer->second);
  return found == connections_.end() ? nullptr : &found->second;
}

std::optional<TimePoint> Connections::unread_since(
    TimePoint now, const std::string& member) const {
  const std::lock_guard lock(mutex_);
  const Connection* const connection = connection_of(member);
  if (connection == nullptr) return std::nullopt;
  const auto info = info_of(connection->descriptor);
  if (!info || !is_open(*info)) return std::nullopt;
  const TimePoint at =
      now - std::chrono::milliseconds(info->tcpi_last_data_recv);
  if (at <= connection->last_call + kOnTheWay) return std::nullopt;
  return at;
}

bool Connections::is_connected(const std::string& member) const {
  const std::lock_guard lock(mutex_);
  const Connection* const connection = connection_of(member);
  if (connection == nullptr) return false;
  const auto info = info_of(connection->descriptor);
  return info && is_open(*info);
}

size_t Connections::count(Standing standing) const {
  const std::lock_guard lock(mutex_);
  return count_locked(standing);
}

}  // namespace headroom::coordinator
