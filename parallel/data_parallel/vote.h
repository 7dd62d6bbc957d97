// The vote that ends a step: all ranks agree whether it counts.
//
// The maxima of four numbers over all ranks tell the worst outcome, the lowest
// rank that had it, and whether anybody asked to stop, to end the generation,
// to write a checkpoint, or to save the state and leave because all ranks'
// agent is lost. Out of memory outranks non-finite: what such a rank
// contributed was zeros, so its peers' finite gradients say nothing. The
// numbers travel with a step's reports (worker/step/step_reports.h).
#pragma once

#include <array>
#include <cstdint>

namespace headroom::data_parallel {

// Outcomes from best to worst. After kOutOfMemory the step is tried again,
// leaner on that rank; after kSmallerMicroBatch, leaner on all of them; after
// kMemoryExhausted the rank has nothing leaner left.
enum class Outcome {
  kOk = 0,
  kNonFinite = 1,
  kOutOfMemory = 2,
  kSmallerMicroBatch = 3,
  kMemoryExhausted = 4
};

struct Ballot {
  Outcome outcome = Outcome::kOk;
  bool stop_requested = false;
  int rank = 0;  // the voter's rank
  bool leave_requested = false;
  bool save_requested = false;
  bool checkpoint_due = false;
};

struct Verdict {
  Outcome outcome = Outcome::kOk;
  bool stop_requested = false;
  int rank = -1;  // the lowest that had the outcome; -1 if ok
  bool leave_requested = false;
  bool save_requested = false;
  bool checkpoint_due = false;  // false beside save_requested, which is more

  bool ok() const { return outcome == Outcome::kOk; }
  bool operator==(const Verdict&) const = default;
};

// Element-wise maxima of encoded ballots decode to their verdict.
using EncodedBallot = std::array<int64_t, 4>;
EncodedBallot encode(const Ballot& ballot);
Verdict decode(const EncodedBallot& maxima);

}  // namespace headroom::data_parallel
