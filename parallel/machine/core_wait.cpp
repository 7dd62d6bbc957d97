#include "parallel/machine/core_wait.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace headroom {

std::chrono::nanoseconds coreless_time() {
  std::chrono::nanoseconds sum{0};
  std::error_code error;
  for (std::filesystem::directory_iterator task("/proc/self/task", error);
       !error && task != std::filesystem::directory_iterator();
       task.increment(error)) {
    std::ifstream file(task->path() / "schedstat");
    int64_t running = 0, waiting = 0;
    if (file >> running >> waiting) sum += std::chrono::nanoseconds(waiting);
  }
  return sum;
}

std::chrono::milliseconds CoreWait::look(std::chrono::nanoseconds coreless,
                                         std::chrono::milliseconds quiet) {
  using std::chrono::nanoseconds;
  // A shorter silence is another one.
  if (quiet < last_quiet_) *this = {};
  last_quiet_ = quiet;
  if (last_) waited_ += std::max(nanoseconds(0), coreless - *last_);
  last_ = coreless;
  // Threads that wait at the same time do not make the silence longer.
  waited_ = std::min<nanoseconds>(waited_, quiet);
  return std::chrono::duration_cast<std::chrono::milliseconds>(waited_);
}

}  // namespace headroom
