// The test device, presented to the worker like a CUDA device: a DeviceApi
// whose tensors have the dispatch key PrivateUse1 (operators.h) and whose
// kernels are the plugin's source compiled for the CPU (emulated_kernels.h).
//
// If NCCL's header is available, its communicator is the CUDA plugin's with a
// replacement for NCCL (tests/support/nccl_shim); otherwise tensors pass
// through the host.
#pragma once

#include "parallel/devices/compute_device.h"
#include "tests/support/test_device/emulated_kernels.h"
#include "tests/support/test_device/test_device_memory.h"

namespace headroom {

// The device is installed by the first call and exists until the process ends.
devices::DeviceApi& test_device_api();

// One of the test devices, with its kernels registered for the model and the
// loss.
devices::ComputeDevice test_compute_device(int index = 0);

}  // namespace headroom
