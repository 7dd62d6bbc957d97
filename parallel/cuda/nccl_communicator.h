// The communicator of ranks with a device each, over NCCL: CUDA's in
// libheadroom_cuda.so, the tests' device in its plugin, over a stand-in for
// NCCL (tests/support/nccl_shim).
//
// Ranks are processes, or threads, with a device each. Tensors on the device
// are reduced where they lie: an operation follows what the current stream has
// to do, and after wait() the current stream follows it; the host does not
// wait. A failure found later is thrown by the next call, check() and
// synchronize() included. Tensors on the CPU (counts, votes) go through the
// device, and wait() waits for them. Beside what Communicator admits it takes
// bfloat16 and float16.
//
// Messages between two ranks are refused: NCCL carries out a communicator's
// operations one after the other, so sends and receives in the orders that a
// pipeline needs want a communicator for each direction of each pair.
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
};

// Collective over `world`, all ranks of a generation, which is used for this
// call alone: one gather. Nothing is connected yet (device_ranks.h).
//
// Throws CommunicationError; Error where two ranks are on one device. What it
// returns throws Error where NCCL finds no memory there.
std::shared_ptr<collectives::DeviceRanks> make_nccl_ranks(
    collectives::Communicator& world, const NcclDevice& device,
    const devices::DeviceCommunicatorOptions& options);

// All of this process end, also while they are made: a peer was lost. Any
// thread may call it; it does not wait.
void abort_nccl_communicators();

// What NCCL must find in the environment. Before it is first used, and before
// there are threads.
void prepare_nccl();

}  // namespace headroom::cuda
