// The kernels of parallel/cuda/kernels behind DeviceKernels.
#pragma once

#include "parallel/devices/device_kernels.h"

namespace headroom {

// Lives until the process ends.
DeviceKernels& cuda_kernels();

}  // namespace headroom
