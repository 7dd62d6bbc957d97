// MemoryLadder: what a rank does when a step does not fit: try again, then
// leaner and leaner. Pure.
//
//   rung 0   the plan's activation policy      two attempts: what was in the
//   way
//                                              may be gone
//   rung 1…  leaner ones                       one attempt each, the last one
//                                              as often as kLastAttempts
//
// A policy changes no result, so a rank climbs alone. After kCalmSteps
// committed steps it goes back to rung 0 once in a run; if that fails again it
// stays lean, and never oscillates.
//
// Threads: one.
#pragma once

#include <cstdint>

namespace headroom {

class MemoryLadder {
 public:
  static constexpr int64_t kCalmSteps = 50;
  static constexpr int kLastAttempts = 4;

  // REQUIRES: num_rungs >= 1.
  explicit MemoryLadder(int num_rungs) : num_rungs_(num_rungs) {}

  // The rung of the next attempt.
  int rung() const { return rung_; }

  // This rank's attempt at a step ran out of memory. False: nothing is left to
  // try, and the step cannot be done.
  bool climb();
  // A step was committed. True: back on rung 0.
  bool note_committed();

 private:
  const int num_rungs_;
  int rung_ = 0;
  int failures_ = 0;  // at this rung, in this step
  int64_t calm_steps_ = 0;
  bool has_gone_back_ = false;
};

}  // namespace headroom
