// The kernels of parallel/cuda/kernels behind DeviceKernels.
#pragma once

#include "parallel/devices/device_kernels.h"

namespace headroom::cuda {

// Lives until the process ends.
devices::DeviceKernels& cuda_kernels();

}  // namespace headroom::cuda
