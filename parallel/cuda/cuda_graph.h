// DeviceGraph over LibTorch's CUDAGraph.
#pragma once

#include <memory>

#include "parallel/devices/device_graph.h"

namespace headroom {

// REQUIRES: the thread's stream of the device is not the default one.
std::unique_ptr<DeviceGraph> make_cuda_graph(int device);

}  // namespace headroom
