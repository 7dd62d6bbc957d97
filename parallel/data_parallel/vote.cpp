#include "parallel/data_parallel/vote.h"

#include <limits>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::data_parallel {
namespace {

// A ballot's first number is outcome x 2^32 + (2^31 - 1 - rank), so that among
// equal outcomes the lowest rank has the largest number. For kOk it is 0 on
// every rank.
constexpr int64_t kOutcomeUnit = int64_t{1} << 32;
constexpr int64_t kLastRank = std::numeric_limits<int32_t>::max();

// A request to save includes a checkpoint, so it has the larger number.
constexpr int64_t kCheckpoint = 1;
constexpr int64_t kSave = 2;
// A request to stop does not wait for a validation, so it has the larger
// number.
constexpr int64_t kTimeIsOver = 1;
constexpr int64_t kStop = 2;

}  // namespace

EncodedBallot encode(const Ballot& ballot) {
  HEADROOM_CHECK(ballot.rank >= 0, cat("rank ", ballot.rank));
  const int64_t outcome = static_cast<int64_t>(ballot.outcome);
  return {outcome == 0 ? 0 : outcome * kOutcomeUnit + kLastRank - ballot.rank,
          ballot.stop_requested ? kStop
          : ballot.time_is_over ? kTimeIsOver
                                : 0,
          ballot.leave_requested ? 1 : 0,
          ballot.save_requested   ? kSave
          : ballot.checkpoint_due ? kCheckpoint
                                  : 0};
}

Verdict decode(const EncodedBallot& maxima) {
  Verdict verdict;
  verdict.outcome = static_cast<Outcome>(maxima[0] / kOutcomeUnit);
  verdict.stop_requested = maxima[1] == kStop;
  verdict.time_is_over = maxima[1] == kTimeIsOver;
  verdict.leave_requested = maxima[2] != 0;
  verdict.save_requested = maxima[3] == kSave;
  verdict.checkpoint_due = maxima[3] == kCheckpoint;
  if (!verdict.ok()) {
    verdict.rank = static_cast<int>(kLastRank - maxima[0] % kOutcomeUnit);
  }
  return verdict;
}

}  // namespace headroom::data_parallel
