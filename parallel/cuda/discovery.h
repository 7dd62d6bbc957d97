// What devices there are. Nothing here creates a context.
//
// Threads: any.
#pragma once

#include "parallel/devices/device_api.h"

namespace headroom::cuda {

// 0 without a driver.
int cuda_device_count();

// REQUIRES: 0 <= device < cuda_device_count(); Error otherwise.
devices::DeviceInfo describe_cuda_device(int device);

// Error that says what there is, unless the device exists.
void check_cuda_device(int device);

// "GPU-00112233-4455-6677-8899-aabbccddeeff" of its 16 bytes.
std::string uuid_text(const char (&bytes)[16]);

}  // namespace headroom::cuda
