// The kernels of this process's device, for model and loss.
//
// Threads: call set_device_kernels before device_kernels_for, which is
// reentrant.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/kernels/device_kernels.h"

namespace headroom::kernels {

// From now on tensors of this device type use `kernels`, which is borrowed;
// nullptr removes the kernels.
void set_device_kernels(c10::DeviceType type, DeviceKernels* kernels);

// Returns nullptr for the CPU, which uses its own loops. Throws Error for a
// tensor on another device without registered kernels.
DeviceKernels* device_kernels_for(const at::Tensor& tensor);

}  // namespace headroom::kernels
