// PeerPatience: how long one operation waits for peers that do not come.
//
// Time counts only while no peer is known to work: a rank that writes a
// checkpoint to a slow disk is late, and nobody is lost (PeerNews). Where all
// ranks wait for each other the network between them has failed, and the limit
// counts. A bound remains, since what works may never end. Pure; looked at
// every now and then.
#pragma once

#include <chrono>

namespace headroom {

class PeerPatience {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // The bound, in limits: 10 minutes where the limit is two.
  static constexpr int kMostLimits = 5;

  PeerPatience(std::chrono::milliseconds limit, Time begin)
      : limit_(limit), begin_(begin), last_look_(begin) {}

  // `a_peer_works`: since the last look.
  bool is_over(Time now, bool a_peer_works) {
    if (!a_peer_works) counted_ += now - last_look_;
    last_look_ = now;
    return counted_ > limit_ || now - begin_ > kMostLimits * limit_;
  }
  // Since the begin, until the last look; for messages.
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
