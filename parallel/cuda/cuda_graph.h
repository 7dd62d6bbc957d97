// DeviceGraph over LibTorch's CUDAGraph.
#pragma once

#include <memory>

#include "parallel/devices/device_api.h"

namespace headroom::cuda {

// REQUIRES: the thread's stream of the device is not the default one.
std::unique_ptr<devices::DeviceGraph> make_cuda_graph(int device);

}  // namespace headroom::cuda
