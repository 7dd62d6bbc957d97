// Connections: all connections to the coordinator's port, and which of them
// gRPC may serve. gRPC itself has no limit.
//
//   stranger   has made no accepted call that proves its part in the run.
//              Strangers are limited in number and bytes, and in time until a
//              call is accepted. If there are too many, the oldest stranger of
//              the address with most strangers is closed, which takes time
//              linear in the number of connections.
//   admitted   has the run's token, or where there is none, is a member with
//              workers; not limited here.
//
// Keeps a copy of each connection's descriptor. It is needed to close the
// connection, and to read from the kernel facts that gRPC does not report: how
// many bytes arrived and when (a member may be alive although the coordinator
// is too busy to read), and whether the connection has ended (an agent was
// killed).
//
// Threads: any. Errors: none.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/run/clock.h"

namespace headroom::coordinator {

// gRPC ends a connection whose handshake takes longer than this.
inline constexpr std::chrono::milliseconds kHandshakeTime{5000};

// Smaller limits save memory under a flood of connections; larger limits let
// more members join at the same time.
struct ConnectionLimits {
  size_t connections = 16384;
  size_t strangers = 256;
  // Strangers without TLS that gRPC serves (greeting.h), those included whose
  // memory it has not freed yet: each can hold kMostCalls calls open, about
  // 1 MB.
  size_t served_strangers = 24;
  std::chrono::milliseconds stranger_time = std::chrono::seconds(10);
  // The bytes that strangers may send at once, and then per second. One hundred
  // bytes can begin a call, which costs gRPC 9 KB until it is answered.
  int64_t burst = 64 << 10;
  int64_t bytes_per_second = 4 << 10;
  int64_t bursts_of_all = 512 << 10;
  int64_t bytes_per_second_of_all = 128 << 10;
  // The bytes of open connections of strangers, which gRPC may hold if messages
  // are unfinished. A client that has sent as much over many minutes is closed
  // between two calls and does not count as a flood.
  int64_t stranger_bytes = 4 << 20;
  int64_t all_strangers_bytes = 32 << 20;
  // The most new connections of one address in a second. Each costs gRPC a
  // handshake.
  size_t new_per_second = 1024;
};

// A connection needs two descriptors, so the limit is half of the process's
// limit, less a reserve for files. All members of a large run may connect at
// once, for example to a restarted coordinator. `checks_strangers`: they make
// no calls before TLS or the token admits them, so their bytes cost little.
ConnectionLimits connection_limits(uint64_t max_descriptors,
                                   int expected_workers = 1,
                                   bool checks_strangers = false);

class Connections {
 public:
  explicit Connections(const ConnectionLimits& limits) : limits_(limits) {}
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // Adds a connection before gRPC receives it. `peer` is gRPC's name for the
  // connection. Returns "" if the connection may be served, otherwise why not.
  std::string add(TimePoint now, int descriptor, const std::string& peer);

  // Whether gRPC may serve this peer, with this descriptor, from now on. Not
  // asked with TLS, where a peer proves itself first. Returns false while too
  // many strangers are served: one that has had a second is closed, and the
  // peer waits until gRPC has released it.
  bool may_serve(TimePoint now, const std::string& peer, int descriptor);

  // Records that this peer got its refusal, so that sweep() counts `why` as the
  // reason when the connection ends.
  void note_refused(const std::string& peer, const std::string& why);

  // Closes this peer's connection; `why` is counted by sweep().
  void end(const std::string& peer, const std::string& why);

  // Records that a call of this peer was accepted. `is_proved`: this peer has
  // proved its part in the run.
  void note_call(TimePoint now, const std::string& peer, bool is_proved = true);

  // Records that this peer sent a heartbeat or the registration of this worker
  // or node.
  void note_heartbeat(const std::string& peer, const std::string& member);

  // Closes connections that exceed a limit and removes connections that have
  // ended. Returns how many were closed since the last sweep, by reason.
  std::map<std::string, int64_t> sweep(TimePoint now);

  // When the bytes arrived on this member's heartbeat connection that gRPC has
  // not handled yet; nullopt if gRPC has handled all bytes.
  std::optional<TimePoint> unread_since(TimePoint now,
                                        const std::string& member) const;

  // Whether this member's heartbeat connection is open.
  bool is_connected(const std::string& member) const;

  // Closes a connection that has made no accepted call yet, to free
  // descriptors. Returns false if there is no such connection.
  bool make_room();

  size_t num_admitted() const;

 private:
  struct Connection {
    int descriptor = -1;
    std::string host;
    std::string member = {};  // the member whose heartbeats arrive here
    bool is_stranger = true;
    bool has_called = false;  // a call was accepted
    int served = -1;          // gRPC's descriptor, after may_serve()
    bool is_refused = false;  // note_refused() was called
    int64_t counted = 0;      // bytes that sweep() has counted
    double recent = 0;        // bytes beyond bytes_per_second
    TimePoint since;
    TimePoint served_since;
    TimePoint last_call;
  };
  // A closed connection of a stranger that gRPC may still hold.
  struct Leaving {
    int served = -1;
    ino_t socket = 0;
  };
  using Entry = std::map<std::string, Connection>::iterator;

  // REQUIRES, for the functions below: the mutex is held.
  void count_end(const Connection& connection, const std::string& why);
  const Connection* connection_of(const std::string& member) const;
  void count_stranger_out(const Connection& connection);
  bool end_a_stranger();
  Entry end(Entry entry, const std::string& why);
  Entry forget(Entry entry);

  const ConnectionLimits limits_;
  mutable std::mutex mutex_;
  // The connection of each peer.
  std::map<std::string, Connection> connections_;
  std::vector<Leaving> leaving_;
  std::map<std::string, std::string> peers_;    // the peer name of each member
  std::map<std::string, size_t> strangers_of_;  // strangers of each address
  // New connections of each address in the current second.
  std::map<std::string, size_t> newcomers_of_;
  size_t num_strangers_ = 0;
  double recent_of_all_ = 0;  // bytes of strangers beyond the limit per second
  TimePoint swept_;
  TimePoint second_;   // when the current second began
  TimePoint saw_all_;  // when sweep() last examined admitted connections
  // Number of connections closed since the last sweep, by reason.
  std::map<std::string, int64_t> ended_;
};

// "ipv4:10.0.0.2:41234" -> "ipv4:10.0.0.2".
std::string host_of_peer(std::string_view peer);

}  // namespace headroom::coordinator
