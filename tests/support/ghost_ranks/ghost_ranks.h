// GhostRanks: a world of n ranks of which only rank 0 exists, so that one
// device runs the whole code of a step with several ranks at full speed: hooks,
// buckets, NCCL's threads, events, the sums after backward.
//
//   a tensor of the device   a real NCCL call on a communicator of one rank;
//                            behind it, on NCCL's stream, a kernel that holds
//                            `blocks` blocks for as long as the ranks would
//                            take
//   a tensor of the host     wait() returns when real ranks would be done
//
// The time is that of forecasts (predict::sum_time): a device's sum takes the
// faster algorithm, as NCCL does; the host's is a ring.
//
// The results make a step sensible, but are not those of real ranks. On the
// host all ranks contribute the same as this one: sums are n times its values,
// so counts and losses are those of n equal ranks. On the device a sum keeps
// this rank's values, so gradients are 1 / n of those of equal ranks; a gather
// fills this rank's part alone. Messages between two ranks are refused.
//
// split() gives another communicator of all n ranks: layouts of data alone.
//
// Ownership: communicators share the state with this object and may outlive it.
// Threads: one issues and waits.
#pragma once

#include <cstdint>
#include <memory>

#include "parallel/collectives/communicator.h"
#include "parallel/devices/compute_device.h"
#include "parallel/predict/forecast.h"

namespace headroom {

class GhostRanks {
 public:
  struct Options {
    int size = 8;
    predict::Machines machines;  // of `size` cards
    // The blocks that NCCL's kernels occupy; an H100 has 132 multiprocessors.
    int blocks = 16;
  };
  // The costs of operations for this rank since the last take().
  struct Figures {
    int64_t sums = 0;            // operations on the device
    double issue_seconds = 0;    // the host's time in their calls
    double held_seconds = 0;     // their modelled time
    double exposed_seconds = 0;  // of it, while the waiting stream was idle
    int64_t host_waits = 0;
    double host_wait_seconds = 0;  // of the host's own operations
  };

  // REQUIRES: a device. Throws Error if the kernel that holds blocks is
  // missing.
  GhostRanks(const Options& options, const devices::ComputeDevice& device);
  ~GhostRanks();

  std::unique_ptr<collectives::Communicator> make_world();

  // From now on exposed_seconds are measured too, with two more events for each
  // operation.
  void measure_exposed(bool measures);
  // REQUIRES: the device has no work left.
  Figures take();

 private:
  struct State;
  class World;
  class HostWork;
  class DeviceWork;
  const std::shared_ptr<State> state_;
};

}  // namespace headroom
