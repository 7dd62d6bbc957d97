// FaultInjection: sets off the faults that --inject names, on this rank, each
// once.
//
//   begin(phase, step);  what the phase does;  end()
//
// Ownership: holds ballasts until its end.
// Threads: any; what begin() arms is the calling thread's, and end() is called
// there too. One thread at a time in a phase.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "configs/fault.h"
#include "parallel/devices/compute_device.h"

namespace headroom::step {

// A fault that was armed.
struct FaultReport {
  configs::Fault fault;
  bool fired = false;
  int64_t allocations = 0;  // those of the phase that were counted for it
};

// "oom@…", "oom@…: not reached, 7 allocations".
std::string describe(const FaultReport& report);

class FaultInjection {
 public:
  // Ballasts and failing allocations are on `device`. `first_step`: the step at
  // which this process replaces another one; kills, hangs, pauses and errors of
  // the device up to it have happened. -1: it runs from the start. Throws Error
  // (exit 2) if a fault asks for a device error that this run cannot have.
  FaultInjection(std::vector<configs::Fault> faults,
                 const devices::ComputeDevice& device, int rank,
                 int64_t first_step = -1, bool has_device_collectives = false);

  // Arms the first fault of this phase and step that has not been armed yet.
  // Allocates a ballast, if it fits. Does not return from a kill or a hang, and
  // late from a pause.
  void begin(configs::Fault::Phase phase, int64_t step);
  // Kills, hangs or pauses this worker, breaks its device, or lets its
  // allocations fail from here on, if there is such a fault for this phase and
  // step.
  void strike(configs::Fault::Phase phase, int64_t step);
  // Disarms.
  std::optional<FaultReport> end();
  // Disarms after another failure cut the phase short: the fault is armed again
  // when the phase is repeated.
  void interrupt();

  // Whether this attempt's loss is to be treated as not finite.
  bool is_not_a_number() const;

 private:
  std::mutex mutex_;                              // guards faults_
  std::vector<configs::Fault> faults_;            // this rank's, not armed yet
  static std::optional<configs::Fault>& armed();  // the calling thread's
  // Lets the n-th allocation fail: the device's, or the host's in the phases
  // that work there.
  void fail_allocation(configs::Fault::Phase phase, int64_t n) const;
  int64_t pending_failure(configs::Fault::Phase phase) const;
  void strike_with(const configs::Fault& fault) const;

  const devices::ComputeDevice device_;
  std::vector<at::Tensor> ballasts_;
};

}  // namespace headroom::step
