// How this process waits for its peers: visibly (PeerWait), and so that it can
// be freed when a peer is lost (AbortableWait). The state is the process's; any
// thread may use it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>

#include "parallel/base/peer_patience.h"

namespace headroom {

// Whoever waits for an operation over ranks, or for the coordinator, puts one
// around it:
//
//   { const PeerWait waiting; work.wait(); }
//
// Whoever watches over the process asks for how long it has shown no sign of
// life. While it waits for peers the answer is 0: it is then they who are late.
class PeerWait {
 public:
  PeerWait() { begin(); }
  ~PeerWait() { end(); }
  PeerWait(const PeerWait&) = delete;
  PeerWait& operator=(const PeerWait&) = delete;

  // The same without a scope, for who waits from one call to another.
  static void begin();
  static void end();
  // The caller made progress.
  static void sign_of_life();
  // Time since the last sign of life or end of waiting; 0 while anybody waits.
  static std::chrono::milliseconds quiet();
  // Somebody waits now.
  static bool is_waiting();
};

// What may take long and is no wait for peers, such as a slow disk: nothing is
// stuck, and peers see a rank that works.
class LongWork {
 public:
  LongWork();
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;
};

// Whether a rank of this generation works instead of waiting for others. The
// coordinator says so in its answers to heartbeats. Threads: any.
class PeerNews {
 public:
  static void note(bool a_peer_works);
  // False where the coordinator has not said so for 5 s.
  static bool a_peer_works();
};

// Whoever learns that a peer is lost frees those who wait for it. A connection
// mostly says so itself, at once; but where the peer died in the middle of a
// message, the rest is waited for until the operation's time limit.
//
//   { const AbortableWait here([&] { work.abort(); }); work.wait(); }
class AbortableWait {
 public:
  // `abort` is called from the thread that aborts, and never after the
  // destructor has returned. With a `limit`, as PeerPatience counts it, it is
  // called within 0.1 s of its end too.
  explicit AbortableWait(std::function<void()> abort,
                         std::optional<std::chrono::milliseconds> limit = {});
  ~AbortableWait();
  AbortableWait(const AbortableWait&) = delete;
  AbortableWait& operator=(const AbortableWait&) = delete;

  // Whether the limit has ended it.
  bool is_late() const { return is_late_; }
  // Aborts what waits now; what begins to wait later is not affected.
  static void abort_all();

 private:
  static void watch_limits();

  const std::function<void()> abort_;
  std::optional<PeerPatience> patience_;
  std::atomic<bool> is_late_ = false;
};

}  // namespace headroom
