// The test device's streams: each does its work in order, in a thread of its
// own, as late as possible: code that forgets to wait finds the old values.
//
// Work begins once a thread waits for it, or after kLaziness, since a device
// works by itself. The host waits only in finish(), and where a stream has
// kMostWaiting pieces of work before it. Streams of one device or of several
// wait for each other without the host.
//
// Threads: any. Errors: an exception of work is thrown by finish() from then
// on, as a card's errors are. Once broken (break_on) a device does no work any
// more either, and its moments are refused.
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
  static constexpr int64_t kMostWaiting = 1024;  // as CUDA's queue of launches

  static TestStreams& instance();

  // Each thread has a current stream on each device.
  c10::Stream current(c10::Device device) const;
  c10::Stream exchange(c10::Stream stream) const;
  c10::Stream make(c10::Device device);
  // The handle that NCCL gets for a stream: a TestStreamHandle
  // (stream_handle.h).
  void* native_handle(const c10::Stream& stream);

  void give(const c10::Stream& stream, std::function<void()> work);
  // Internal work, which is not counted as a kernel.
  void give_quietly(const c10::Stream& stream, std::function<void()> work);

  // Work queued on the stream from now on is not done, and a wait for it or for
  // another stream of its device throws an error that stays.
  void break_on(const c10::Stream& stream);
  // That error, once a stream has reached it.
  std::optional<std::string> failure(c10::DeviceIndex device) const;

  // A moment of a stream: after all work queued so far.
  struct Moment {
    c10::DeviceIndex device = 0;
    int64_t stream = 0;
    int64_t count = 0;
  };
  Moment moment(const c10::Stream& stream) const;
  void wait(const c10::Stream& stream, const Moment& moment);
  bool is_past(const Moment& moment) const;

  // The host waits.
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
