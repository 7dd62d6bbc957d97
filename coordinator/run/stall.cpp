#include "coordinator/run/stall.h"

#include <algorithm>

namespace headroom::coordinator {

std::optional<std::string> stall_error(int64_t quiet_ms, int64_t median_step_ms,
                                       int64_t committed_steps) {
  constexpr int64_t kLeastMs = 10'000;
  constexpr int64_t kMedians = 5;
  const int64_t limit = std::max(kLeastMs, kMedians * median_step_ms);
  if (quiet_ms <= limit) return std::nullopt;
  return "was stuck in step " + std::to_string(committed_steps) + ": no sign " +
         "of life for " + std::to_string(quiet_ms) +
         " ms while it waited for " + "nobody";
}

}  // namespace headroom::coordinator
