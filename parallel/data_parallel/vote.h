// The vote that ends a step: all ranks agree whether it counts.
//
// The maxima of four numbers over all ranks tell the worst outcome, the lowest
// rank that had it, and whether anybody asked to stop, to end the generation,
// to write a checkpoint, or to save the state and leave because all ranks'
// agent is lost. The numbers travel with a step's reports
// (worker/step/step_reports.h).
//
// A rank that could not compute its part casts no ballot: it leaves the
// generation, and the step is tried again in the next one.
#pragma once

#include <array>
#include <cstdint>

namespace headroom::data_parallel {

// Outcomes from best to worst.
enum class Outcome { kOk = 0, kNonFinite = 1 };

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
