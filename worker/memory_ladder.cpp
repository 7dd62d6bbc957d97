#include "worker/memory_ladder.h"

namespace headroom {

bool MemoryLadder::climb() {
  calm_steps_ = 0;
  ++failures_;
  const bool is_last = rung_ + 1 == num_rungs_;
  if (is_last) return failures_ < kLastAttempts;
  const int attempts = rung_ == 0 ? 2 : 1;
  if (failures_ >= attempts) {
    ++rung_;
    failures_ = 0;
  }
  return true;
}

bool MemoryLadder::note_committed() {
  failures_ = 0;
  if (rung_ == 0 || has_gone_back_ || ++calm_steps_ < kCalmSteps) return false;
  has_gone_back_ = true;
  rung_ = 0;
  return true;
}

}  // namespace headroom
