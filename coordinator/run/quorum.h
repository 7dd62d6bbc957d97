// Quorum: may a generation start, and with whom?
//
// Membership is fixed, so the answer is yes when all expected workers have
// joined. A version that re-forms generations adds its rule here (at least
// min_workers and more than half of those alive); callers see the same
// decision: members or none, and a sentence why.
//
// Threads: a pure function.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/membership.h"

namespace headroom::coordinator {

struct QuorumOptions {
  int expected_workers = 1;
  // From the first agent's registration until everybody must have joined.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
};

struct QuorumDecision {
  std::vector<Member> members;  // empty: not yet
  bool timed_out = false;       // it will not come about any more
  std::string reason;           // in words, for the log and the status
};

// `since`: when the waiting began.
QuorumDecision decide_quorum(TimePoint now, TimePoint since,
                             const std::vector<Member>& members,
                             const QuorumOptions& options);

}  // namespace headroom::coordinator
