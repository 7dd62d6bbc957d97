// How this process waits for its peers: PeerWait makes the waiting visible,
// PeerPatience limits it, and AbortableWait lets another thread abort it when a
// peer is lost. The state is per process; any thread may use it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>

namespace headroom {

// Put a PeerWait around every wait for other ranks or for the coordinator:
//
//   { const PeerWait waiting; work.wait(); }
//
// The heartbeat reports quiet(), the time for which this process made no
// progress. quiet() is 0 while this process waits for peers, because then the
// peers are late, not this process.
class PeerWait {
 public:
  PeerWait() { begin(); }
  ~PeerWait() { end(); }
  PeerWait(const PeerWait&) = delete;
  PeerWait& operator=(const PeerWait&) = delete;

  // These two calls are for a wait that begins in one function and ends in
  // another.
  static void begin();
  static void end();
  // Records that the caller made progress.
  static void sign_of_life();
  // Time since the last sign_of_life(), or the end of the last wait or
  // LongWork; 0 during a wait or LongWork.
  static std::chrono::milliseconds quiet();
  // Returns true while any thread waits.
  static bool is_waiting();
  // The processor time that the calling thread has used so far, in waits that
  // it ended itself, and in all.
  struct ProcessorTime {
    std::chrono::nanoseconds in_waits, in_all;
  };
  static ProcessorTime processor_time();
};

// Scope around long work without waiting, such as writing to a slow disk. The
// process counts as alive meanwhile, and its peers wait for it.
class LongWork {
 public:
  LongWork();
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;
};

// Whether a rank of this generation is working, not waiting for others, as
// reported in the coordinator's replies to heartbeats. Threads: any.
class PeerNews {
 public:
  static void note(bool a_peer_works);
  // Returns false if the last 5 s brought no report of a working peer.
  static bool a_peer_works();
};

// PeerPatience: how long one operation waits for peers.
//
// Time counts against the limit only while no peer is reported as working: a
// rank that writes a checkpoint to a slow disk is late, not lost (PeerNews). If
// all ranks wait for each other, the network between them has failed and the
// time counts. The total wait is bounded by kMostLimits, since working peers
// may never finish. The class is pure: the caller passes the time, and calls
// is_over() repeatedly.
class PeerPatience {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Bound on the total wait, as a multiple of the limit: with a limit of 2
  // minutes the wait ends after 10 minutes.
  static constexpr int kMostLimits = 5;

  PeerPatience(std::chrono::milliseconds limit, Time begin)
      : limit_(limit), begin_(begin), last_look_(begin) {}

  // `a_peer_works`: whether a peer was working since the previous call.
  bool is_over(Time now, bool a_peer_works) {
    if (!a_peer_works) counted_ += now - last_look_;
    last_look_ = now;
    return counted_ > limit_ || now - begin_ > kMostLimits * limit_;
  }
  // Time from the beginning to the last is_over() call; for messages.
  std::chrono::milliseconds waited() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(last_look_ -
                                                                 begin_);
  }

 private:
  std::chrono::milliseconds limit_;
  Time begin_, last_look_;
  Time::duration counted_{0};
};

// A wait that another thread can abort with abort_all() when a peer is lost. A
// broken connection usually ends the wait by itself, at once; but if the peer
// dies in the middle of a message, the wait for the rest lasts until the
// operation's time limit.
//
//   { const AbortableWait here([&] { work.abort(); }); work.wait(); }
class AbortableWait {
 public:
  // `abort` is called from the thread that calls abort_all(), and never after
  // the destructor has returned. With a `limit`, counted by PeerPatience, it is
  // also called within about 0.1 s of the end of the limit.
  explicit AbortableWait(std::function<void()> abort,
                         std::optional<std::chrono::milliseconds> limit = {});
  ~AbortableWait();
  AbortableWait(const AbortableWait&) = delete;
  AbortableWait& operator=(const AbortableWait&) = delete;

  // Returns true if the limit ended the wait.
  bool is_late() const { return is_late_; }
  // Aborts the current waits. A wait that begins later is not affected.
  static void abort_all();

 private:
  static void watch_limits();

  const std::function<void()> abort_;
  std::optional<PeerPatience> patience_;
  std::atomic<bool> is_late_ = false;
};

}  // namespace headroom
