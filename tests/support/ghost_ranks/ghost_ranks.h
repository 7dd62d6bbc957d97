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
// The modelled times are those of forecasts (predict::sum_time): a sum on the
// device uses the faster algorithm, as NCCL does; a sum on the host uses a
// ring.
//
// The results allow a step to run, but are not those of real ranks. On the
// host, all ranks contribute the same values as this one: a sum is n times its
// values, so counts and losses are those of n equal ranks. On the device, so is
// a sum of doubles (reports, batch-norm sums), for one more launch; other sums
// keep this rank's values, so gradients are 1 / n of those of equal ranks, and
// a gather fills only this rank's part. Messages between two ranks are refused.
//
// split() gives another communicator of all n ranks, so only layouts that split
// nothing but the data are possible.
//
// Ownership: communicators share the state with this object and may outlive it.
// Threads: one thread issues operations and waits for them.
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
    predict::Machines machines;  // machines with `size` cards in all
    // The blocks that NCCL's kernels occupy; an H100 has 132 multiprocessors.
    int blocks = 16;
  };
  // The costs of operations for this rank since the last take().
  struct Figures {
    int64_t sums = 0;          // operations on the device
    double issue_seconds = 0;  // time that the host spent in the calls
    double held_seconds = 0;   // modelled time of the operations
    // The part of held_seconds in which the waiting stream was idle.
    double exposed_seconds = 0;
    int64_t host_waits = 0;
    double host_wait_seconds = 0;  // the waits for operations on the host
  };

  // REQUIRES: a device. Throws Error if the kernel that holds blocks is
  // missing.
  GhostRanks(const Options& options, const devices::ComputeDevice& device);
  ~GhostRanks();

  std::unique_ptr<collectives::Communicator> make_world();

  // Switches the measurement of exposed_seconds on or off. It costs two more
  // events for each operation.
  void measure_exposed(bool measures);
  // Returns the figures and resets them. REQUIRES: the device has no work left.
  Figures take();

 private:
  struct State;
  class World;
  class HostWork;
  class DeviceWork;
  const std::shared_ptr<State> state_;
};

}  // namespace headroom
