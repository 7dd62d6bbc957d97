// headroom-worker devices: what the plugin for devices shows, for agents, which
// have no LibTorch. Agents ask NVIDIA's driver where CUDA's plugin is used
// (parallel/nvml), which takes less time; they ask this where another one is.
#pragma once

#include <string>

namespace headroom::tools {

// {"devices": [{"index": 0, "uuid": …, "name": …, "compute_capability": 90,
//   "total_bytes": …}], "reason": "why there is none"}
std::string devices_json();

}  // namespace headroom::tools
