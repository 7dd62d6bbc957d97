#include "parallel/base/file_lock.h"

#include <sys/file.h>

#include <chrono>
#include <thread>

namespace headroom {

bool lock_soon(int descriptor) {
  constexpr auto kPatience = std::chrono::milliseconds(200);
  constexpr auto kPause = std::chrono::milliseconds(5);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace headroom
