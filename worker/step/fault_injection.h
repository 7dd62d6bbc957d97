// FaultInjection: triggers the faults of --inject on this rank, each once.
//
//   begin(phase, step);  ... the work of the phase ...  end()
//
// Ownership: keeps ballasts until it is destroyed.
// Threads: any, but a phase runs on one thread at a time. begin() arms the
// fault for the calling thread, which also calls end().
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
  int64_t allocations = 0;  // allocations while the fault was armed
};

// "oom@…", "oom@…: not reached, 7 allocations".
std::string describe(const FaultReport& report);

class FaultInjection {
 public:
  // Ballasts and failing allocations are on `device`. `first_step`: the step at
  // which this process replaced another one; -1 if it did not. Kills, hangs,
  // pauses, device errors and changed bits up to that step are not repeated.
  // Throws Error (exit 2) if this device cannot have a fault.
  FaultInjection(std::vector<configs::Fault> faults,
                 const devices::ComputeDevice& device, int rank,
                 int64_t first_step = -1, bool has_device_collectives = false);

  // Arms the first unused fault for this phase and step. Allocates a ballast
  // (memory that nothing uses), if it fits. A kill or hang does not return; a
  // pause returns late.
  void begin(configs::Fault::Phase phase, int64_t step);
  // Kills, hangs or pauses this worker, breaks its device, or lets its
  // allocations fail from here on, if there is such a fault for this phase and
  // step.
  void strike(configs::Fault::Phase phase, int64_t step);
  // Disarms the fault and returns its report.
  std::optional<FaultReport> end();
  // Disarms the fault after another failure has ended the phase early. The
  // fault is armed again when the phase is repeated.
  void interrupt();

  // Whether this attempt's loss is to be treated as not finite.
  bool is_not_a_number() const;
  // Changes a bit of `weights`, a flat buffer, if the armed fault says so.
  void corrupt(const at::Tensor& weights) const;
  // Called after passes that took `seconds` of the processor: takes more of it
  // if this rank is to be slow.
  void slow_down(double seconds) const;

 private:
  std::mutex mutex_;                    // guards faults_
  std::vector<configs::Fault> faults_;  // faults of this rank, not armed yet
  // The fault that is armed for the calling thread.
  static std::optional<configs::Fault>& armed();
  // Makes the n-th allocation fail: on the device, or on the host in phases
  // that allocate there.
  void fail_allocation(configs::Fault::Phase phase, int64_t n) const;
  int64_t pending_failure(configs::Fault::Phase phase) const;
  void strike_with(const configs::Fault& fault) const;

  const devices::ComputeDevice device_;
  std::vector<at::Tensor> ballasts_;
  int64_t slower_by_percent_ = 0;
};

}  // namespace headroom::step
