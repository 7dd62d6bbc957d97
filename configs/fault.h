// Fault: a failure that a test injects. It takes the code path of the real
// failure.
//
//   oom@rank=1,step=7,allocation=40   the 40th allocation of that step's
//                                     attempt throws, as does the real
//                                     allocator
//   oom@rank=0,step=4,allocation=2,phase=validation
//                                     the same, counted from the start of
//                                     something else that this rank does:
//     vote, commit            of that step: neither allocates, so such a fault
//                             is reported as not reached
//     forward, backward       of that step: counted from where its first such
//                             pass begins
//     loader                  where that step's targets are assigned
//     validation, checkpoint  after that many committed steps
//                                     Of --device's allocations, but of the
//                                     host's in loader and checkpoint. A GPU's
//                                     allocator can only be kept from adding
//                                     segments: whatever the number, the first
//                                     request that needs one throws
//   nan@rank=0,step=4                 that step's gradient is not finite
//   ballast@rank=0,step=5,bytes=8388608
//                                     so much is allocated before that step, or
//                                     before another phase, and held to the end
//                                     of the process
//
//   kill@rank=0,step=5,phase=vote     the process is killed (SIGKILL) there:
//     forward (the default), backward, vote, commit      of that step
//     validation, checkpoint  after that many committed steps
//     between                 when its rank joins another generation after them
//     end                     when the run is over, before rank 0 reports it
//   hang@rank=1,step=3                its training thread stops there for good;
//                                     the same phases
//   pause@rank=0,step=3,phase=commit,seconds=2
//                                     it stops there for so long, and logs that
//                                     first: other faults may happen meanwhile
//
//   device_error@rank=1,step=3,phase=backward
//                                     a kernel traps on its card, as after an
//                                     error of the hardware: the process cannot
//                                     use it any more. forward (the default),
//                                     backward, commit of that step, or
//                                     collective: the step's first operation of
//                                     NCCL does not happen
//
// A worker that was started again skips those of these four kinds whose steps
// came before.
//
// Several are separated by ";". Each fires once; a retried step fires the next
// one in the list.
//
// Errors: Error (exit 2) naming the part that is wrong.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace headroom::configs {

struct Fault {
  enum class Kind {
    kOutOfMemory,
    kNotANumber,
    kBallast,
    kKill,
    kHang,
    kPause,
    kDeviceError
  };
  enum class Phase {
    kStep,
    kVote,
    kCommit,
    kLoader,
    kValidation,
    kCheckpoint,
    kForward,
    kBackward,
    kCollective,
    kBetween,
    kEnd
  };
  Kind kind = Kind::kOutOfMemory;
  int rank = 0;
  int64_t step = 0;
  int64_t allocation = 1;  // counted from the phase's first
  Phase phase = Phase::kStep;
  int64_t bytes = 0;    // the size of a ballast
  int64_t seconds = 0;  // the length of a pause
  bool stops_the_worker() const {
    return kind == Kind::kKill || kind == Kind::kHang || kind == Kind::kPause;
  }
  // Whether it fires at one moment and stops the worker or breaks its card.
  bool strikes() const {
    return stops_the_worker() || kind == Kind::kDeviceError;
  }
  bool operator==(const Fault&) const = default;
};

// A kind of fault: its name, its argument and its effect.
struct FaultDescription {
  Fault::Kind value;
  const char* name;  // "oom", before the '@'
  // The number that it takes beside rank and step: "allocation". nullptr where
  // it takes none.
  const char* number = nullptr;
  int64_t Fault::*number_member = nullptr;
  bool needs_number = false;  // There is no default.
  bool takes_phase = true;
  const char* example;
  const char* does;  // "an allocation fails": for the help
};

// Every kind, in the order of the help.
std::span<const FaultDescription> fault_descriptions();

std::vector<Fault> parse_faults(const std::string& text);

// The fault as parse_faults reads it.
std::string to_string(const Fault& fault);

}  // namespace headroom::configs
