// DeviceRanks: makes the communicators of a generation's devices (NCCL's), each
// beside one of the host that has the same ranks.
//
// Nothing is connected until the first operation, so a group whose ranks never
// exchange a device's tensor costs no memory there. What is connected belongs
// to the generation: a later group of the same ranks in the same order uses it
// too, and their operations follow each other in the order of issue.
//
// Why the first use cannot deadlock where the operation itself would not: to
// connect is an operation of its own, on `host` and among the group's ranks
// alone, right before the first one. All ranks of a group issue the same
// operations in the same order, so they all come to it; whether they connect
// there follows from the group's ranks and from the groups before it, and is
// the same on all of them. No other rank takes part, as it would in a split of
// an existing communicator. It does make the host wait for the group's other
// ranks, which the operation might not. So groups that are sure to be used are
// connected with the mesh (Communicator::connect).
#pragma once

#include <memory>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

class DeviceRanks {
 public:
  virtual ~DeviceRanks() = default;

  // The communicator of `host`'s ranks, which are ranks of the generation.
  // `host` must outlive it; it carries what NCCL needs to connect. Any rank may
  // call it alone.
  virtual std::unique_ptr<Communicator> over(Communicator& host) = 0;
};

}  // namespace headroom::collectives
