// Strangers: the connections on which no request has had the page's token yet.
// Any user of the machine can open such connections, so they have a pool of
// their own: when it is full, the oldest one is ended for the newest. A reader
// with the token leaves the pool with the first request, which takes
// milliseconds. So strangers, however many, use up no connection of a reader.
//
// A stranger must send the head of its first request within a limit, however
// slowly its bytes arrive, and gets one answer.
//
// A connection is ended by shutting down its socket; the server then closes it.
//
// Threads: any; the class has a thread of its own, for the limit.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <list>
#include <mutex>
#include <thread>

namespace headroom::page {

class Strangers {
 public:
  // A connection, from its beginning to its end.
  struct Visitor;

  // At most `most` connections are strangers at one time. A connection has
  // `head_time` to send the head of its first request.
  Strangers(size_t most, std::chrono::milliseconds head_time);
  ~Strangers();
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  // A connection begins as a stranger. `socket` must stay open until left().
  Visitor* arrived(int socket);
  // Call this function when the head of a request has arrived. With `has_token`
  // the visitor is no stranger from then on. Returns true if the visitor is
  // still a stranger.
  bool asked(Visitor& visitor, bool has_token);
  // Call this function when the connection is closed. Frees the visitor.
  void left(Visitor* visitor);

 private:
  using Clock = std::chrono::steady_clock;

  void watch();

  const size_t most_;
  const std::chrono::milliseconds head_time_;
  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  std::list<Visitor*> strangers_;  // the oldest first
  bool is_over_ = false;
  std::thread thread_;
};

struct Strangers::Visitor {
  int socket = -1;
  Clock::time_point arrival;
  bool has_asked = false;  // a complete request head has arrived
  bool is_known = false;
  bool is_ended = false;                  // its socket was shut down
  std::list<Visitor*>::iterator place{};  // in strangers_, unless is_known
};

}  // namespace headroom::page
