// StepPhase: where in a training step a thread is, for whoever records it. The
// step says so at each change; without an observer that costs one test of a
// pointer. Each thread has its own observer.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

namespace headroom {

// The vote begins with the small all-reduces after backward; kNone: between
// steps.
enum class StepPhase { kNone, kForward, kBackward, kVote, kCommit };

// "between steps" for kNone, else "forward" and so on.
inline const char* name_of(StepPhase phase) {
  static constexpr std::array kNames = {"between steps", "forward", "backward",
                                        "vote", "commit"};
  return kNames.at(static_cast<size_t>(phase));
}

class StepPhaseObserver {
 public:
  virtual ~StepPhaseObserver() = default;
  // The phase before ends here.
  virtual void begin_phase(StepPhase phase) = 0;
};

inline thread_local StepPhaseObserver* step_phase_observer = nullptr;

// Sets this thread's observer, or none with null. Returns the one before.
inline StepPhaseObserver* observe_step_phases(StepPhaseObserver* observer) {
  return std::exchange(step_phase_observer, observer);
}

inline void begin_step_phase(StepPhase phase) {
  if (step_phase_observer != nullptr) step_phase_observer->begin_phase(phase);
}

}  // namespace headroom
