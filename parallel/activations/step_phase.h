// StepPhase: the phase of the training step that a thread is in. The step
// reports each change to the thread's observer. Without an observer this costs
// one test of a pointer.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

namespace headroom {

// kVote begins with the small all-reduces after backward; kNone: between steps.
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
  // Called when `phase` begins; the previous phase ends at the same moment.
  virtual void begin_phase(StepPhase phase) = 0;
};

inline thread_local StepPhaseObserver* step_phase_observer = nullptr;

// Sets this thread's observer; nullptr removes it. Returns the previous
// observer.
inline StepPhaseObserver* observe_step_phases(StepPhaseObserver* observer) {
  return std::exchange(step_phase_observer, observer);
}

inline void begin_step_phase(StepPhase phase) {
  if (step_phase_observer != nullptr) step_phase_observer->begin_phase(phase);
}

}  // namespace headroom
