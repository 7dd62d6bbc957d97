// CoreWait: for how much of a silence this process had no processor core.
//
// On an overloaded machine a thread that has work may wait for a core for
// seconds. A training that makes no progress for this reason is slow, not
// stuck, and must not be ended.
#pragma once

#include <chrono>
#include <optional>

namespace headroom {

// The time in which threads of this process had work but no core, summed over
// the threads. Falls when a thread ends, because ended threads do not count.
// Stays 0 if the kernel does not measure it. Reads a file for each thread, some
// 10 us each. Any thread.
std::chrono::nanoseconds coreless_time();

// The part of one silence in which the process had no core. The class is pure:
// the caller passes coreless_time().
//
// The kernel adds a wait only when it ends, so a long wait appears at once and
// late, and the sum may grow faster than time between two looks.
//
// A weakness: the waits of all threads count, also of threads on which the
// training does not depend, although together never more than the silence. A
// stuck training on an overloaded machine is therefore found late.
class CoreWait {
 public:
  // Call several times a second during a silence that has lasted for `quiet`.
  // Returns how much of it passed without a core since the first call.
  std::chrono::milliseconds look(std::chrono::nanoseconds coreless,
                                 std::chrono::milliseconds quiet);

 private:
  std::optional<std::chrono::nanoseconds> last_;
  std::chrono::milliseconds last_quiet_{0};
  std::chrono::nanoseconds waited_{0};
};

}  // namespace headroom
