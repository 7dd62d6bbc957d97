// Moments for tests that have no clock.
#pragma once

#include <chrono>

#include "coordinator/run/clock.h"

namespace headroom::coordinator {

inline TimePoint at(int ms) {
  return TimePoint() + std::chrono::milliseconds(ms);
}

}  // namespace headroom::coordinator
