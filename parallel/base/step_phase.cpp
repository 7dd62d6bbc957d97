#include "parallel/base/step_phase.h"

#include <string>
#include <utility>

#include "parallel/base/check.h"

namespace headroom {
namespace {

thread_local StepPhaseObserver* the_observer = nullptr;

}  // namespace

const char* name_of(StepPhase phase) {
  switch (phase) {
    case StepPhase::kNone:
      return "between steps";
    case StepPhase::kForward:
      return "forward";
    case StepPhase::kBackward:
      return "backward";
    case StepPhase::kVote:
      return "vote";
    case StepPhase::kCommit:
      return "commit";
  }
  HEADROOM_CHECK(false,
                 "step phase " + std::to_string(static_cast<int>(phase)));
}

StepPhaseObserver* observe_step_phases(StepPhaseObserver* observer) {
  return std::exchange(the_observer, observer);
}

void begin_step_phase(StepPhase phase) {
  if (the_observer != nullptr) the_observer->begin_phase(phase);
}

}  // namespace headroom
