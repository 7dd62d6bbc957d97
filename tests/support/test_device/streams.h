// The test device's streams: the first computes at once; what others are given
// waits as long as it may, so that whoever forgets to wait for it finds what
// was there before.
//
// Work of another stream is done when the first stream or the host waits for
// an event recorded after it, or for the stream.
//
// Threads: any.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>

namespace headroom {

class TestStreams {
 public:
  static TestStreams& instance();

  c10::Stream current(c10::Device device) const;
  c10::Stream exchange(c10::Stream stream) const;
  c10::Stream make(c10::Device device);

  // At once on the first stream, and later on another.
  void give(const c10::Stream& stream, std::function<void()> work);

  // A moment of a stream: all that it had been given.
  struct Moment {
    int64_t stream = 0;
    int64_t count = 0;
  };
  Moment moment(const c10::Stream& stream) const;
  void wait(const c10::Stream& stream, const Moment& moment);
  void finish(const Moment& moment);
  bool is_past(const Moment& moment) const;

  // Pieces of work that waited.
  int64_t delayed() const;

 private:
  TestStreams();
  struct State;
  State* const state_;  // lives until the process ends
};

}  // namespace headroom
