// PeerPatience: how long one operation waits for peers.
//
// Time counts against the limit only while no peer is reported as working: a
// rank that writes a checkpoint to a slow disk is late, not lost (PeerNews). If
// all ranks wait for each other, the network between them has failed and the
// time counts. The total wait is bounded by kMostLimits, since working peers
// may never finish. The class is pure: the caller passes the time, and calls
// is_over() repeatedly.
#pragma once

#include <chrono>

namespace headroom {

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

}  // namespace headroom
