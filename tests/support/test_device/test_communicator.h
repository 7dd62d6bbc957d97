// The communicators of ranks on test devices. They use the CUDA plugin's own
// code with tests/support/nccl_shim, or the host if NCCL's header is missing.
#pragma once

#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <string>

#include "parallel/devices/device_api.h"

namespace headroom {

// Call it once, before the first communicator is made.
void prepare_test_communicators();

// Like DeviceApi::connect_ranks. Returns null if tensors go through the host.
std::shared_ptr<collectives::DeviceRanks> connect_test_ranks(
    collectives::Communicator& world, const devices::DeviceInfo& device,
    const devices::DeviceCommunicatorOptions& options);

void abort_test_communicators();

// Like cuda::before_next_operation. Runs the hook at once if tensors go through
// the host.
void before_next_test_operation(std::function<void(const c10::Stream&)> hook);

}  // namespace headroom
