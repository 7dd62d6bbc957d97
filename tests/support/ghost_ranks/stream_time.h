// A moment of a device's stream, and work that does nothing but take time, both
// for CUDA and for the tests' device (tests/support/test_device).
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>

namespace headroom {

class StreamMoment {
 public:
  StreamMoment() = default;
  // The time at which the stream reaches this point.
  explicit StreamMoment(const c10::Stream& stream);
  // REQUIRES: the streams have reached both moments.
  double seconds_since(const StreamMoment& earlier) const;

 private:
  struct Time;
  std::shared_ptr<c10::Event> event_;  // used for a CUDA device
  std::shared_ptr<Time> time_;         // used for the test device
};

// Occupies `blocks` blocks of the device for `seconds`, in the stream's order.
// Throws Error if the CUDA kernel cannot be loaded or launched; it is in
// libheadroom_ghost_hold.so beside the program.
void hold_stream(const c10::Stream& stream, int blocks, double seconds);

}  // namespace headroom
