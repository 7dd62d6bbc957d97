#include "parallel/base/step_phase.h"

#include <array>
#include <cstddef>
#include <utility>

namespace headroom {
namespace {

thread_local StepPhaseObserver* the_observer = nullptr;

}  // namespace

const char* name_of(StepPhase phase) {
  static constexpr std::array kNames = {"between steps", "forward", "backward",
                                        "vote", "commit"};
  return kNames.at(static_cast<size_t>(phase));
}

StepPhaseObserver* observe_step_phases(StepPhaseObserver* observer) {
  return std::exchange(the_observer, observer);
}

void begin_step_phase(StepPhase phase) {
  if (the_observer != nullptr) the_observer->begin_phase(phase);
}

}  // namespace headroom
