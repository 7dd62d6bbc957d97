#include "parallel/predict/cluster.h"

#include <algorithm>
#include <array>

namespace headroom::predict {

bool wheel_has_code_for(int compute_capability) {
  constexpr std::array kBuilt = {75, 80, 86, 90, 100, 120};
  return std::any_of(kBuilt.begin(), kBuilt.end(), [&](int built) {
    return built / 10 == compute_capability / 10 && built <= compute_capability;
  });
}

std::string capability_text(int compute_capability) {
  return std::to_string(compute_capability / 10) + "." +
         std::to_string(compute_capability % 10);
}

int64_t tensor_budget(int64_t gpu_memory_bytes) {
  const int64_t usable = gpu_memory_bytes / 100 * (100 - kGpuSlackPercent);
  return std::max<int64_t>(0, usable - kGpuReserveBytes);
}

}  // namespace headroom::predict
