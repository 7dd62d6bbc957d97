// The communicator of ranks with one device each, over NCCL.
// libheadroom_cuda.so uses it for CUDA; the plugin of the tests' device uses it
// with a substitute for NCCL (tests/support/nccl_shim).
//
// Ranks are processes or threads. Device tensors are reduced in place: an
// operation runs after the work queued on the current stream, and wait() makes
// the current stream wait for the operation; the host does not wait. A failure
// that is found later is thrown by the next call, check() and synchronize()
// included. CPU tensors (counts, votes) are copied through the device, and
// wait() waits for them. In addition to the types of Communicator it takes
// bfloat16 and float16.
//
// Messages between two ranks need connect_messages(). NCCL runs a
// communicator's operations one after another, and a pipeline's sends and
// receives are in another order on each rank, so each direction of each pair of
// ranks has an NCCL communicator and a stream. A send ends when its receiver
// has the data.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "parallel/devices/device_api.h"

namespace headroom::cuda {

struct NcclDevice {
  c10::Device device = c10::kCPU;
  std::string uuid;
  devices::HostServices services = {};
  // Memory of the host that the device can read, for NcclFamily.
  std::shared_ptr<void> failure_word;
};

// Collective over `world`, which has all ranks of a generation and is used only
// during this call. Connections are made later (nccl_ranks.h).
//
// Throws CommunicationError; Error if two ranks are on one device. The result
// throws Error if the device has no memory for NCCL.
std::shared_ptr<collectives::DeviceRanks> make_nccl_ranks(
    collectives::Communicator& world, const NcclDevice& device,
    const devices::DeviceCommunicatorOptions& options);

// Aborts all communicators of this process, including those being created,
// because a peer was lost. Any thread may call it; it does not wait.
void abort_nccl_communicators();

// Sets the environment variables that NCCL needs. Call it before NCCL is first
// used and before other threads start.
void prepare_nccl();

}  // namespace headroom::cuda
