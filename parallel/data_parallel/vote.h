// The vote at the end of a step: all ranks agree whether the step counts.
//
// Each rank encodes its ballot in four numbers. Their maxima over all ranks
// give the worst outcome, the lowest rank that had it, and whether any rank
// asked to stop, to end the run because its time is over, to end the
// generation, to write a checkpoint, or to save the state and leave because the
// agent of all ranks is lost. The numbers are sent with the step's reports
// (worker/step/step_reports.h).
//
// A rank that could not compute its part does not vote: it leaves the
// generation, and the step is tried again in the next one.
#pragma once

#include <array>
#include <cstdint>

namespace headroom::data_parallel {

// From best to worst.
enum class Outcome { kOk = 0, kNonFinite = 1 };

struct Ballot {
  Outcome outcome = Outcome::kOk;
  bool stop_requested = false;
  int rank = 0;  // the voter's rank
  bool leave_requested = false;
  bool save_requested = false;
  bool checkpoint_due = false;
  bool time_is_over = false;
};

struct Verdict {
  Outcome outcome = Outcome::kOk;
  bool stop_requested = false;
  int rank = -1;  // lowest rank with this outcome; -1 if kOk
  bool leave_requested = false;
  bool save_requested = false;
  // false if save_requested, because saving includes a checkpoint
  bool checkpoint_due = false;
  bool time_is_over = false;  // false if stop_requested

  bool ok() const { return outcome == Outcome::kOk; }
  bool operator==(const Verdict&) const = default;
};

// encode() turns a ballot into numbers; decode() gets the element-wise maxima
// of all encoded ballots.
using EncodedBallot = std::array<int64_t, 4>;
EncodedBallot encode(const Ballot& ballot);
Verdict decode(const EncodedBallot& maxima);

}  // namespace headroom::data_parallel
