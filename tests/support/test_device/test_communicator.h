// How ranks on test devices communicate: by the CUDA plugin's own code over
// tests/support/nccl_shim, or through the host where NCCL's header is missing.
#pragma once

#include <memory>
#include <string>

#include "parallel/devices/device_api.h"

namespace headroom {

// Once, before the first.
void prepare_test_communicators();

// As DeviceApi::make_communicator.
std::unique_ptr<collectives::Communicator> make_test_communicator(
    KeyValueStore& store, const std::string& prefix, int rank, int size,
    const devices::DeviceInfo& device,
    const devices::DeviceCommunicatorOptions& options);

void abort_test_communicators();

}  // namespace headroom
