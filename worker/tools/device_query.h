// headroom-worker devices: lists the devices of the device plugin, for agents,
// which do not load LibTorch. Agents use it only for plugins other than the one
// for CUDA. For CUDA they query NVIDIA's driver (parallel/nvml), which is
// faster.
#pragma once

#include <string>

namespace headroom::tools {

// {"devices": [{"index": 0, "uuid": …, "name": …, "compute_capability": 90,
//   "total_bytes": …}], "reason": "why there is none"}
std::string devices_json();

}  // namespace headroom::tools
