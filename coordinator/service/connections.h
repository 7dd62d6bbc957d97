// Connections: who is connected, what each may use up, and when each last sent
// something. gRPC serves them; this decides which it may go on serving.
//
//   stranger   has made no call that was let in: few of them, for a short time,
//              with few bytes; one too many ends the oldest of the address that
//              has most
//   guest      knows the join token: as many, for any time, at a low rate
//   member     has proved who it is: unbounded by this
//
// A copy of each connection's descriptor is kept, by which the system says how
// much has come, and by which a connection is ended under gRPC's hands.
//
// Threads: any. Errors: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "coordinator/run/clock.h"

namespace headroom::coordinator {

enum class Standing { kStranger, kGuest, kMember };

struct ConnectionLimits {
  size_t connections = 16384;
  size_t strangers = 256;
  size_t guests = 256;
  // Shorter than gRPC's own limit for a handshake, so that it is counted here.
  std::chrono::milliseconds stranger_time = std::chrono::seconds(4);
  int64_t stranger_bytes = 4 << 20;  // the longest message
  int64_t all_strangers_bytes = 32 << 20;
  int64_t guest_bytes = 8 << 20;
  int64_t guest_bytes_per_second = 256 << 10;
  // New connections of one address.
  double new_per_second = 500;
  double new_at_once = 1024;
};

// The connections are half of the descriptors that this process may open, less
// a reserve for files: a connection has two. All members of a large run
// may come at once, as when they find a coordinator that was started again.
ConnectionLimits connection_limits(uint64_t max_descriptors,
                                   int expected_workers = 1);

class Connections {
 public:
  explicit Connections(const ConnectionLimits& limits) : limits_(limits) {}
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // A new connection, before gRPC has it. `peer` as gRPC says it. "" if it may
  // be served, else why it may not, in few words.
  std::string add(TimePoint now, int descriptor, const std::string& peer);

  // A call of this peer has come and was let in.
  void note_call(TimePoint now, const std::string& peer, Standing standing);

  // A heartbeat of this worker or node, or its registration, came from there.
  void note_heartbeat(const std::string& peer, const std::string& member);

  // Ends those that use up too much, forgets those that have ended. Returns why
  // and how many were ended since the last time.
  std::map<std::string, int64_t> sweep(TimePoint now);

  // The time at which bytes came, from where this member's heartbeats come,
  // that no call has followed yet: they lie unread, or are on their way through
  // gRPC. Nothing where there are none.
  std::optional<TimePoint> unread_since(TimePoint now,
                                        const std::string& member) const;

  // Whether the connection stands from which this member's heartbeats come.
  bool is_connected(const std::string& member) const;

  // Ends the oldest stranger, where descriptors have run out.
  void make_room();

  size_t count(Standing standing) const;

 private:
  struct Connection {
    int descriptor = -1;
    std::string host;
    std::string member;  // the member whose heartbeats come here
    Standing standing = Standing::kStranger;
    TimePoint since;
    TimePoint last_call;
    uint64_t number = 0;         // counted from the first
    int64_t bytes_as_guest = 0;  // its bytes before it became one
  };
  struct Host {
    double new_connections = 0;  // connections it may still open
    TimePoint filled;
    size_t strangers = 0;
  };
  // A member's is looked at once in so many sweeps.
  static constexpr uint64_t kSweepsToMember = 20;
  using Entry = std::map<std::string, Connection>::iterator;

  // The mutex is held in all of these.
  Host& host_of(TimePoint now, const std::string& host);
  void set_standing(Connection& connection, Standing standing);
  const Connection* connection_of(const std::string& member) const;
  bool end_a_stranger();
  Entry forget(Entry entry);
  std::string excess_of(TimePoint now, const Connection& connection,
                        int64_t bytes) const;
  size_t count_locked(Standing standing) const {
    return counts_[static_cast<size_t>(standing)];
  }

  const ConnectionLimits limits_;
  mutable std::mutex mutex_;
  // The connection of each peer.
  std::map<std::string, Connection> connections_;
  std::map<std::string, std::string> peers_;  // the peer of each member
  std::map<std::string, Host> hosts_;
  uint64_t num_added_ = 0;
  uint64_t num_sweeps_ = 0;
  size_t counts_[3] = {0, 0, 0};          // one for each standing
  std::map<std::string, int64_t> ended_;  // ends since the last sweep by reason
};

}  // namespace headroom::coordinator
