// FaultInjection: sets off the faults that --inject names, on this rank, each
// once.
//
// Ownership: a value. Threads: the thread that runs the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/fault.h"

namespace headroom {

class FaultInjection {
 public:
  FaultInjection(std::vector<Fault> faults, int rank);

  // Arms what comes next in this step.
  void begin_attempt(int64_t step);
  // Disarms. Returns the fault that went off, in words; "" if none did.
  std::string end_attempt();

  // Whether the attempt's loss is to be taken for one that is not finite.
  bool is_not_a_number() const;

 private:
  std::vector<Fault> faults_;  // of this rank, that have not gone off
  bool is_armed_ = false;
  std::size_t armed_ = 0;
};

}  // namespace headroom
