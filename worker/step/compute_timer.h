// ComputeTimer: for how long a rank computes, without its waits for other ranks
// and for a processor core.
//
// On the CPU it is the processor time of the calling thread, which leads the
// others. On a GPU it is the time between two events of the current stream, in
// which waits for other ranks count: Trainer times only runs without them.
//
// Threads: one.
#pragma once

#include <memory>

#include "parallel/base/peer_wait.h"
#include "parallel/devices/compute_device.h"

namespace headroom::step {

class ComputeTimer {
 public:
  // Begins to measure.
  explicit ComputeTimer(const devices::ComputeDevice& device);
  ~ComputeTimer();
  ComputeTimer(const ComputeTimer&) = delete;
  ComputeTimer& operator=(const ComputeTimer&) = delete;

  void stop();
  // REQUIRES: stop(). 0 if a GPU has not finished the work yet.
  double seconds() const;

 private:
  struct Events;

  const std::unique_ptr<Events> events_;  // null on the CPU
  const PeerWait::ProcessorTime begin_;
  double seconds_ = 0;  // on the CPU, after stop()
};

}  // namespace headroom::step
