// StepPhase: where in a training step a thread is, for whoever records it.
//
// The step says it where it passes by; without an observer that is one test of
// a pointer.
//
// Threads: each has its own observer.
#pragma once

namespace headroom {

// The vote begins with the small all-reduces after backward; kNone: between
// steps.
enum class StepPhase { kNone, kForward, kBackward, kVote, kCommit };

// "forward".
const char* name_of(StepPhase phase);

class StepPhaseObserver {
 public:
  virtual ~StepPhaseObserver() = default;
  // The phase before ends here.
  virtual void begin_phase(StepPhase phase) = 0;
};

// From now on on this thread; null: nobody. Returns the one before.
StepPhaseObserver* observe_step_phases(StepPhaseObserver* observer);

void begin_step_phase(StepPhase phase);

}  // namespace headroom
