#include "coordinator/service/connections.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace headroom::coordinator {
namespace {

// Time from the arrival of a call's bytes until the call's handler runs.
constexpr std::chrono::milliseconds kOnTheWay{50};
// A client that has sent nothing for so long is not in the middle of a call.
constexpr uint32_t kBetweenCallsMs = 100;
// Most bytes that a member sends before its first accepted call.
constexpr int64_t kBytesOfMember = 16 << 10;

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

// The number of a socket; 0 if the descriptor is closed or is none.
ino_t socket_of(int descriptor) {
  struct stat status {};
  const bool is_socket =
      ::fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
  return is_socket ? status.st_ino : 0;
}

}  // namespace

std::string host_of_peer(std::string_view peer) {
  return std::string(peer.substr(0, peer.rfind(':')));
}

ConnectionLimits connection_limits(uint64_t max_descriptors,
                                   int expected_workers,
                                   bool checks_strangers) {
  constexpr size_t kReserve = 256;
  ConnectionLimits limits;
  // A worker may have an agent of its own: two members for each worker.
  const size_t members = 2 * static_cast<size_t>(expected_workers);
  const size_t room =
      std::max<size_t>(max_descriptors, 2 * kReserve) - kReserve;
  limits.connections =
      std::min(std::max(limits.connections, 2 * members), room / 2);
  const size_t most_strangers = std::max(
      limits.connections / 4, std::min(members, limits.connections / 2));
  limits.strangers =
      std::min(std::max(limits.strangers, members), most_strangers);
  limits.all_strangers_bytes =
      std::max(limits.all_strangers_bytes,
               kBytesOfMember * static_cast<int64_t>(members));
  limits.bursts_of_all = std::max(
      limits.bursts_of_all, kBytesOfMember / 4 * static_cast<int64_t>(members));
  if (checks_strangers) limits.burst = limits.stranger_bytes;
  limits.new_per_second = std::max(limits.new_per_second, members);
  return limits;
}

Connections::~Connections() {
  for (auto& [peer, connection] : connections_) close(connection.descriptor);
}

std::string Connections::add(TimePoint now, int descriptor,
                             const std::string& peer) {
  const std::lock_guard lock(mutex_);
  if (now - second_ >= std::chrono::seconds(1)) {
    newcomers_of_.clear();
    second_ = now;
  }
  const std::string host = host_of_peer(peer);
  if (++newcomers_of_[host] > limits_.new_per_second) {
    return "too many new connections";
  }
  const bool is_full = connections_.size() >= limits_.connections ||
                       num_strangers_ >= limits_.strangers;
  if (is_full && !end_a_stranger()) return "too many connections";
  if (const auto old = connections_.find(peer); old != connections_.end()) {
    forget(old);  // that connection has ended: a new one has the same port
  }
  const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return "no descriptor is left";
  connections_[peer] = {.descriptor = own,
                        .host = host,
                        .since = now,
                        .served_since = {},
                        .last_call = now};
  ++num_strangers_;
  ++strangers_of_[host];
  return "";
}

void Connections::note_call(TimePoint now, const std::string& peer,
                            bool is_proved) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  connection.last_call = now;
  connection.has_called = true;
  if (!is_proved || !connection.is_stranger) return;
  connection.is_stranger = false;
  count_stranger_out(connection);
}

bool Connections::may_serve(TimePoint now, const std::string& peer,
                            int descriptor) {
  constexpr std::chrono::seconds kTurn{1};
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return false;
  std::erase_if(leaving_, [](const Leaving& leaving) {
    return socket_of(leaving.served) != leaving.socket;
  });
  size_t served = leaving_.size();
  Entry oldest = connections_.end();
  for (Entry entry = connections_.begin(); entry != connections_.end();
       ++entry) {
    const Connection& connection = entry->second;
    if (!connection.is_stranger || connection.served < 0) continue;
    ++served;
    if (oldest == connections_.end() ||
        connection.served_since < oldest->second.served_since) {
      oldest = entry;
    }
  }
  // During a flood strangers wait, and for up to four seconds after it.
  const auto most = static_cast<double>(limits_.bursts_of_all);
  recent_of_all_ =
      std::min(recent_of_all_,
               most + 4 * static_cast<double>(limits_.bytes_per_second_of_all));
  if (recent_of_all_ > most) return false;
  if (served < limits_.served_strangers) {
    Connection& connection = found->second;
    connection.served = descriptor;
    connection.served_since = now;
    // gRPC reads at once what has arrived, some of it since the last sweep.
    const auto info = info_of(connection.descriptor);
    const int64_t bytes = info ? bytes_of(*info) : connection.counted;
    connection.recent +=
        static_cast<double>(bytes - std::exchange(connection.counted, bytes));
    recent_of_all_ += static_cast<double>(bytes);
    return true;
  }
  if (oldest != connections_.end() &&
      now - oldest->second.served_since > kTurn) {
    end(oldest, "too many connections");
  }
  return false;
}

void Connections::note_refused(const std::string& peer,
                               const std::string& why) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  count_end(found->second, why);
  found->second.is_refused = true;
}

void Connections::count_end(const Connection& connection,
                            const std::string& why) {
  if (!why.empty() && !connection.is_refused) ++ended_[why];
}

void Connections::end(const std::string& peer, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(peer);
  if (found != connections_.end()) end(found, why);
}

Connections::Entry Connections::end(Entry entry, const std::string& why) {
  count_end(entry->second, why);
  shutdown(entry->second.descriptor, SHUT_RDWR);
  return forget(entry);
}

void Connections::note_heartbeat(const std::string& peer,
                                 const std::string& member) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  found->second.member = member;
  peers_[member] = peer;
}

void Connections::count_stranger_out(const Connection& connection) {
  --num_strangers_;
  const auto count = strangers_of_.find(connection.host);
  if (--count->second == 0) strangers_of_.erase(count);
}

Connections::Entry Connections::forget(Entry entry) {
  const Connection& connection = entry->second;
  if (connection.is_stranger) count_stranger_out(connection);
  if (connection.is_stranger && connection.served >= 0) {
    leaving_.push_back({connection.served, socket_of(connection.descriptor)});
  }
  const auto peer = peers_.find(connection.member);
  if (peer != peers_.end() && peer->second == entry->first) peers_.erase(peer);
  close(connection.descriptor);
  return connections_.erase(entry);
}

bool Connections::end_a_stranger() {
  Entry worst = connections_.end();
  const auto rank_of = [&](const Connection& connection) {
    return std::pair(strangers_of_[connection.host],
                     -connection.since.time_since_epoch().count());
  };
  for (Entry entry = connections_.begin(); entry != connections_.end();
       ++entry) {
    if (!entry->second.is_stranger) continue;
    if (worst == connections_.end() ||
        rank_of(entry->second) > rank_of(worst->second)) {
      worst = entry;
    }
  }
  if (worst == connections_.end()) return false;
  end(worst, "too many connections");
  return true;
}

bool Connections::make_room() {
  const std::lock_guard lock(mutex_);
  return end_a_stranger();
}

std::map<std::string, int64_t> Connections::sweep(TimePoint now) {
  const std::lock_guard lock(mutex_);
  const bool sees_all = now - saw_all_ >= std::chrono::seconds(1);
  if (sees_all) saw_all_ = now;
  int64_t strangers_bytes = 0;
  // Returns why a stranger's connection has failed or must be closed now; ""
  // closes it without counting a fault.
  using Fault = std::optional<std::string>;
  const double seconds = std::chrono::duration<double>(now - swept_).count();
  swept_ = now;
  const auto drain = [&](double& recent, int64_t per_second) {
    recent = std::max(0.0, recent - seconds * static_cast<double>(per_second));
  };
  drain(recent_of_all_, limits_.bytes_per_second_of_all);
  // Other connections wait at the door, where their bytes cost nothing.
  const auto is_served = [&](const Connection& connection) {
    return connection.served >= 0;
  };
  const auto fault_of = [&](const tcp_info& info,
                            Connection& connection) -> Fault {
    const auto age = now - connection.since;
    const int64_t bytes = bytes_of(info);
    if (!is_open(info)) {
      if (connection.has_called) return std::nullopt;
      // The client had no certificate or no TLS, or closed the connection too
      // early; gRPC does not report which. A port probe, which sends nothing
      // and ends at once, is not a fault.
      if (bytes > 0) return "broken handshake";
      return age > kHandshakeTime / 2 ? Fault("silent connection")
                                      : std::nullopt;
    }
    const auto news =
        static_cast<double>(bytes - std::exchange(connection.counted, bytes));
    connection.recent += news;  // they arrived since the last sweep
    drain(connection.recent, limits_.bytes_per_second);
    if (is_served(connection)) recent_of_all_ += news;
    strangers_bytes += bytes;
    // A client that joins during a flood has sent little, and one that asks for
    // the status now and then sends slowly: neither is closed.
    const bool is_small = bytes <= kBytesOfMember;
    const bool is_slow =
        connection.recent <= static_cast<double>(kBytesOfMember);
    const auto most = static_cast<double>(limits_.bursts_of_all);
    if (connection.recent > static_cast<double>(limits_.burst) ||
        (is_served(connection) && !is_slow && recent_of_all_ > most)) {
      return "flood";
    }
    if (bytes > limits_.stranger_bytes ||
        (!is_small && strangers_bytes > limits_.all_strangers_bytes)) {
      // A client that is closed between two calls connects again by itself.
      const bool is_late = bytes > 2 * limits_.stranger_bytes;
      if (is_late || info.tcpi_last_data_recv > kBetweenCallsMs) return "";
    }
    return age > limits_.stranger_time && !connection.has_called
               ? Fault("silent connection")
               : std::nullopt;
  };
  for (auto entry = connections_.begin(); entry != connections_.end();) {
    Connection& connection = entry->second;
    if (!connection.is_stranger && !sees_all) {
      ++entry;
      continue;
    }
    const auto info = info_of(connection.descriptor);
    const bool is_over = !info || !is_open(*info);
    const Fault fault = connection.is_stranger && info
                            ? fault_of(*info, connection)
                            : std::nullopt;
    if (fault) count_end(connection, *fault);
    if (!is_over && !fault) {
      ++entry;
      continue;
    }
    if (!is_over) shutdown(connection.descriptor, SHUT_RDWR);
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

size_t Connections::num_admitted() const {
  const std::lock_guard lock(mutex_);
  return connections_.size() - num_strangers_;
}

}  // namespace headroom::coordinator
