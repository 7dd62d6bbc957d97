// The test device as the worker sees a CUDA device: a DeviceApi whose tensors
// are of dispatch key PrivateUse1 (operators.h) and whose kernels are the
// plugin's text on the CPU (emulated_kernels.h).
//
// Its communicator is the CUDA plugin's, over a stand-in for NCCL
// (tests/support/nccl_shim), where NCCL's header is; elsewhere tensors pass
// through the host.
#pragma once

#include "parallel/devices/compute_device.h"
#include "tests/support/test_device/emulated_kernels.h"
#include "tests/support/test_device/test_device_memory.h"

namespace headroom {

// Installed with the first call; lives until the process ends.
devices::DeviceApi& test_device_api();

// One of the devices, with its kernels registered for the model and the loss.
devices::ComputeDevice test_compute_device(int index = 0);

}  // namespace headroom
