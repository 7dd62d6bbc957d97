// StepPhase: where in a training step a thread is, for whoever records it. The
// step says so at each change; without an observer that costs one test of a
// pointer. Each thread has its own observer.
#pragma once

namespace headroom {

// The vote begins with the small all-reduces after backward; kNone: between
// steps.
enum class StepPhase { kNone, kForward, kBackward, kVote, kCommit };

// "between steps" for kNone, else "forward" and so on.
const char* name_of(StepPhase phase);

class StepPhaseObserver {
 public:
  virtual ~StepPhaseObserver() = default;
  // The phase before ends here.
  virtual void begin_phase(StepPhase phase) = 0;
};

// Sets this thread's observer, or none with null. Returns the one before.
StepPhaseObserver* observe_step_phases(StepPhaseObserver* observer);

void begin_step_phase(StepPhase phase);

}  // namespace headroom
