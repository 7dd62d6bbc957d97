// Connections: who is connected to the coordinator's port, and which
// connections gRPC may go on serving. gRPC itself takes any number.
//
//   stranger   has made no call yet that was let in: it has no certificate or
//              token, or is about to show them. Strangers are few, stay for
//              seconds, and send few bytes; one too many ends the oldest of the
//              address that has most.
//   admitted   has made such a call; nothing here bounds it.
//
// A copy of each connection's descriptor is kept. It tells how much has come
// and when, also where gRPC is too busy to read, and a connection is ended by
// it.
//
// Threads: any. Errors: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/run/clock.h"

namespace headroom::coordinator {

// gRPC ends a connection whose handshake takes longer.
inline constexpr std::chrono::milliseconds kHandshakeTime{5000};

enum class Standing { kStranger, kAdmitted };

// Smaller limits cost a flood's target less memory; larger ones let more
// members join at the same time.
struct ConnectionLimits {
  size_t connections = 16384;
  size_t strangers = 256;
  std::chrono::milliseconds stranger_time = std::chrono::seconds(10);
  int64_t stranger_bytes = 4 << 20;  // the longest message
  int64_t all_strangers_bytes = 32 << 20;
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

  // Adds a new connection before gRPC has it. `peer` is gRPC's name for it.
  // Returns "" if it may be served, else why not.
  std::string add(TimePoint now, int descriptor, const std::string& peer);

  // A call of this peer has come and was let in.
  void note_call(TimePoint now, const std::string& peer);

  // A heartbeat of this worker or node, or its registration, came from there.
  void note_heartbeat(const std::string& peer, const std::string& member);

  // Ends those that use up too much, forgets those that have ended. Returns why
  // and how many were ended since the last time.
  std::map<std::string, int64_t> sweep(TimePoint now);

  // When bytes arrived on the connection of this member's heartbeats that no
  // call has followed yet, because gRPC has not read or handled them. Nothing
  // if there are none.
  std::optional<TimePoint> unread_since(TimePoint now,
                                        const std::string& member) const;

  // Whether the connection of this member's heartbeats is open.
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
    uint64_t number = 0;  // counted from the first
  };
  struct Host {
    double new_connections = 0;  // connections it may still open
    TimePoint filled;
    size_t strangers = 0;
  };
  // An admitted one is looked at once in so many sweeps.
  static constexpr uint64_t kSweepsToAdmitted = 20;
  using Entry = std::map<std::string, Connection>::iterator;

  // The mutex is held in all of these.
  Host& host_of(TimePoint now, const std::string& host);
  const Connection* connection_of(const std::string& member) const;
  bool end_a_stranger();
  Entry forget(Entry entry);
  void note_failure(TimePoint now, const Connection& connection, int64_t bytes);
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
  size_t counts_[2] = {0, 0};             // one for each standing
  std::map<std::string, int64_t> ended_;  // ends since the last sweep by reason
};

// "ipv4:10.0.0.2:41234" -> "ipv4:10.0.0.2".
std::string host_of_peer(std::string_view peer);

}  // namespace headroom::coordinator
