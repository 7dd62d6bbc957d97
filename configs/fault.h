// Fault: a failure injected by a test. It takes the same code path as the real
// failure.
//
//   oom@rank=1,step=7,allocation=40   the 40th allocation of one attempt at
//                                     that step throws the real allocator's
//                                     exception
//   oom@rank=0,step=4,allocation=2,phase=validation
//                                     the 2nd allocation of that phase throws;
//                                     allocations count from its start:
//     vote, commit            of that step. These phases allocate nothing, so
//                             the fault is reported as not reached
//     forward, backward       of that step; the count starts with the step's
//                             first forward or backward pass
//     loader                  while the targets of that step are assigned
//     validation, checkpoint  after that many committed steps
//                                     Allocations on --device are counted; in
//                                     loader and checkpoint, those on the host.
//                                     A GPU's allocator can fail only when it
//                                     needs a new segment: the first such
//                                     request throws, whatever the number
//   nan@rank=0,step=4                 that step's gradient is not finite; with
//                                     step=0,phase=check the check of float16
//                                     fails (worker/run/float16_check.h)
//   ballast@rank=0,step=5,bytes=8388608
//                                     allocates that many bytes before the step
//                                     or another phase, and holds them to the
//                                     end of the process
//
//   kill@rank=0,step=5,phase=vote     the process is killed (SIGKILL) in that
//                                     phase:
//     forward (the default), backward, vote, commit      of that step
//     validation, checkpoint  after that many committed steps
//     between                 when the rank joins a later generation that
//                             begins at that step
//     end                     when the run is over, before rank 0 reports it
//   hang@rank=1,step=3                the rank's training thread stops for
//                                     ever; the phases are those of kill
//   pause@rank=0,step=3,phase=commit,seconds=2
//                                     the rank's training thread logs the fault
//                                     and stops for that time; other faults may
//                                     happen during the pause
//
//   device_error@rank=1,step=3,phase=backward
//                                     a kernel traps on the rank's card, as
//                                     after a hardware error: the process can
//                                     no longer use the card. The phase is
//                                     forward (the default), backward or commit
//                                     of that step, or collective: the kernel
//                                     traps in place of the step's first NCCL
//                                     operation
//
//   corrupt@rank=1,step=5             one bit of the rank's weights changes
//                                     after the commit of that step
//   slow@rank=1,step=5,percent=30     from that step on, the rank's passes take
//                                     so much longer; on the CPU only
//
// A restarted worker skips kill, hang, pause, device_error and corrupt for
// earlier steps.
//
// Several faults are separated by ";". Each fires once; a retried step fires
// the next one in the list.
//
// Errors: Error (exit 2) that names the wrong part.
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
    kDeviceError,
    kCorrupt,
    kSlow
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
    kEnd,
    kCheck
  };
  Kind kind = Kind::kOutOfMemory;
  int rank = 0;
  int64_t step = 0;
  int64_t allocation = 1;  // counted from the start of the phase
  Phase phase = Phase::kStep;
  int64_t bytes = 0;    // the size of a ballast
  int64_t seconds = 0;  // the length of a pause
  int64_t percent = 0;  // how much longer the passes of a slow rank take
  bool stops_the_worker() const {
    return kind == Kind::kKill || kind == Kind::kHang || kind == Kind::kPause;
  }
  // Whether the fault stops the worker or breaks its card.
  bool strikes() const {
    return stops_the_worker() || kind == Kind::kDeviceError;
  }
  // Whether a worker that is started after this step skips the fault.
  bool happens_to_a_worker() const {
    return strikes() || kind == Kind::kCorrupt;
  }
  bool operator==(const Fault&) const = default;
};

// A kind of fault: its name, its argument and its effect.
struct FaultDescription {
  Fault::Kind value;
  const char* name;  // "oom", before the '@'
  // The name of the number that may follow rank and step: "allocation"; nullptr
  // if this kind has no such number.
  const char* number = nullptr;
  int64_t Fault::*number_member = nullptr;
  bool needs_number = false;  // whether the number must be given
  const char* example;
  const char* does;  // the effect for the help: "an allocation fails"
};

// Every kind, in the order of the help.
std::span<const FaultDescription> fault_descriptions();

std::vector<Fault> parse_faults(const std::string& text);

// The text from which parse_faults() reads this fault.
std::string to_string(const Fault& fault);

}  // namespace headroom::configs
