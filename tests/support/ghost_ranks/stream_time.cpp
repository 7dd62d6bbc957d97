#include "tests/support/ghost_ranks/stream_time.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>

#include "parallel/base/check.h"
#include "parallel/base/plugin_library.h"
#include "tests/support/test_device/stream_handle.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

bool is_cuda(const c10::Stream& stream) {
  return stream.device_type() == c10::DeviceType::CUDA;
}

// Queues the work on a stream of the test device.
template <typename Work>
void give(const c10::Stream& stream, Work work) {
  HEADROOM_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1,
                 "a stream of another device");
  const auto* const handle =
      static_cast<const TestStreamHandle*>(stream.native_handle());
  handle->give(
      handle,
      [](void* given) {
        const std::unique_ptr<Work> done(static_cast<Work*>(given));
        (*done)();
      },
      new Work(std::move(work)));
}

using Hold = int (*)(void* stream, int blocks, unsigned long long nanoseconds);

Hold cuda_hold() {
  static const Hold loaded = [] {
    const std::string path =
        plugin_path("HEADROOM_GHOST_HOLD", "libheadroom_ghost_hold.so");
    const auto library = open_plugin<Hold>(path, "headroom_ghost_hold");
    if (library.factory == nullptr) {
      throw Error("ghost ranks",
                  "the kernel that holds a card: " + library.error,
                  "build where nvcc is: cmake --build build -t "
                  "headroom_ghost_hold");
    }
    return library.factory;
  }();
  return loaded;
}

}  // namespace

struct StreamMoment::Time {
  std::atomic<Clock::time_point> passed{};
};

StreamMoment::StreamMoment(const c10::Stream& stream) {
  if (is_cuda(stream)) {
    event_ = std::make_shared<c10::Event>(c10::DeviceType::CUDA,
                                          c10::EventFlag::BACKEND_DEFAULT);
    event_->record(stream);
    return;
  }
  time_ = std::make_shared<Time>();
  give(stream, [time = time_] { time->passed = Clock::now(); });
}

double StreamMoment::seconds_since(const StreamMoment& earlier) const {
  if (event_) return earlier.event_->elapsedTime(*event_) / 1e3;
  return std::chrono::duration<double>(time_->passed.load() -
                                       earlier.time_->passed.load())
      .count();
}

void hold_stream(const c10::Stream& stream, int blocks, double seconds) {
  if (is_cuda(stream)) {
    const int failed = cuda_hold()(
        stream.native_handle(), blocks,
        static_cast<unsigned long long>(std::llround(1e9 * seconds)));
    if (failed != 0) {
      throw Error("ghost ranks",
                  "the kernel that holds a card cannot be launched: CUDA's "
                  "error " +
                      std::to_string(failed),
                  "build it for this card");
    }
    return;
  }
  give(stream, [seconds] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  });
}

}  // namespace headroom
