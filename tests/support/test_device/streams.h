// The test device's streams. Each stream does its work in order, in a thread of
// its own and as late as possible, so that code that forgets to wait reads old
// values.
//
// Work begins once a thread waits for it. Without a wait it begins after
// kLaziness, because a real device does not need a wait to begin. The host
// waits only in finish(), and when kMostWaiting pieces of work are queued on
// the stream. Streams of the same device or of different devices wait for each
// other without the host.
//
// Threads: any. Errors: if work throws, finish() throws this exception from
// then on, as a card's errors are. A device that is broken (break_on) does no
// more work, and its moments are refused.
#pragma once

#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace headroom {

class TestStreams {
 public:
  static constexpr std::chrono::milliseconds kLaziness{2};
  static constexpr int64_t kMostWaiting = 1024;  // as long as CUDA's queue

  static TestStreams& instance();

  // Each thread has a current stream on each device.
  c10::Stream current(c10::Device device) const;
  c10::Stream exchange(c10::Stream stream) const;
  c10::Stream make(c10::Device device);
  // The handle of a stream that NCCL gets: a TestStreamHandle
  // (stream_handle.h).
  void* native_handle(const c10::Stream& stream);

  void give(const c10::Stream& stream, std::function<void()> work);
  // Internal work, which is not counted as a kernel.
  void give_quietly(const c10::Stream& stream, std::function<void()> work);

  // Work that is queued on the stream from now on is not done. A wait for the
  // stream, or for another stream of its device, throws an error from then on.
  void break_on(const c10::Stream& stream);
  // The error of break_on(), once a stream has reached it.
  std::optional<std::string> failure(c10::DeviceIndex device) const;

  // A moment of a stream: the point after all work that is queued so far.
  struct Moment {
    c10::DeviceIndex device = 0;
    int64_t stream = 0;
    int64_t count = 0;
  };
  Moment moment(const c10::Stream& stream) const;
  void wait(const c10::Stream& stream, const Moment& moment);
  bool is_past(const Moment& moment) const;

  // The host waits until the moment is reached.
  void finish(const Moment& moment);
  void finish(const c10::Stream& stream) { finish(moment(stream)); }
  void finish_device(c10::DeviceIndex device);

  // The number of pieces of work queued on streams other than each device's
  // first.
  int64_t delayed() const;

 private:
  TestStreams();
  struct State;
  State* const state_;  // lives until the process ends
};

}  // namespace headroom
