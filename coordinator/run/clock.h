// Clock: where the coordinator's time comes from.
//
// Every decision takes the time as an argument; only the service asks a clock,
// so that tests script it. The clock is steady: a step of the wall clock must
// not expire anybody.
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
