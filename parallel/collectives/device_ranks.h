// DeviceRanks: makes the communicators (NCCL) of a generation's devices, each
// with the same ranks as a communicator of the host.
//
// Connections are made at the first operation, so a group whose ranks never
// exchange device tensors costs no device memory. Connections belong to the
// generation: a later group of the same ranks in the same order shares them,
// and their operations run in the order of issue.
//
// Connecting cannot cause a deadlock: it is a separate operation on `host`,
// among the group's ranks only, right before the first device operation. All
// ranks of a group issue the same operations in the same order, so all of them
// reach this point. Whether they connect depends only on the group's ranks and
// on earlier groups, which are equal on all ranks. Splitting an existing
// communicator would need other ranks too. Connecting makes the host wait for
// the group's other ranks, so groups that are certain to be used connect when
// the mesh is made (Communicator::connect).
#pragma once

#include <memory>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

// LibTorch has this many streams of a device, and gives the first out again
// after the last. The sums of a device share one; each connection for messages
// has one of its own.
inline constexpr int kStreamsOfDevice = 32;
inline constexpr int kMostMessageStreams = kStreamsOfDevice - 1;

class DeviceRanks {
 public:
  virtual ~DeviceRanks() = default;

  // The device communicator of `host`'s ranks, which belong to the generation.
  // NCCL connects through `host`, which must outlive the result. Not
  // collective.
  virtual std::unique_ptr<Communicator> over(Communicator& host) = 0;
};

}  // namespace headroom::collectives
