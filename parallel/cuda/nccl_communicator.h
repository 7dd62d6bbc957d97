// NcclCommunicator: ranks are processes with a CUDA device each.
//
// Tensors on the device are reduced where they lie: an operation follows what
// the current stream has to do, and after wait() the current stream follows it;
// the host does not wait. A failure found later is thrown by the next call, at
// the latest by the step's vote, which is read on the host. Tensors on the CPU
// (counts, votes) go through the device, and wait() waits for them.
//
// Messages between two ranks are refused: NCCL carries out a communicator's
// operations one after the other, so sends and receives in the orders that a
// pipeline needs want a communicator for each direction of each pair.
//
// Beside what Communicator admits: bfloat16 and float16.
#pragma once

#include <memory>
#include <string>

#include "parallel/devices/device_api.h"

namespace headroom::cuda {

// Collective over all ranks. Keys are written below `prefix`, which no earlier
// group of the same store may have used: rank 0 makes a new id in each
// generation. Throws CommunicationError; Error where two ranks are on one
// device.
// REQUIRES: 0 <= rank < size.
std::unique_ptr<collectives::Communicator> make_nccl_communicator(
    KeyValueStore& store, const std::string& prefix, int rank, int size,
    const devices::DeviceCommunicatorOptions& options);

}  // namespace headroom::cuda
