// Clock: the coordinator's source of time.
//
// All decisions take the time as an argument; only the service reads a clock.
// So tests can script the time. The clock is steady: a change of the wall clock
// must not make members expire.
//
// Threads: now() is safe from any thread.
#pragma once

#include <chrono>

namespace headroom::coordinator {

using TimePoint = std::chrono::steady_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class SystemClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace headroom::coordinator
