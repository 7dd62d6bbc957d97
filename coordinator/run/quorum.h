// Quorum: whether the first generation may start, and with which members. It
// starts when all expected workers have joined. Later generations follow the
// rules of regrouping.h.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/membership.h"

namespace headroom::coordinator {

struct QuorumOptions {
  int expected_workers = 1;
  // The run fails if not all workers have joined within this time after the
  // first agent registered. Increase it if nodes start late.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
};

struct QuorumDecision {
  std::vector<Member> members;  // empty if the generation cannot start yet
  bool timed_out = false;       // join_timeout has passed: the run fails
  std::string reason;           // for the log and the status
};

// `since`: when the first agent registered.
QuorumDecision decide_quorum(TimePoint now, TimePoint since,
                             const std::vector<Member>& members,
                             const QuorumOptions& options);

// Rank assignment: members -> ranks, so that neighbouring ranks share a node.
//
//   launcher  host  slots          rank  local_rank
//   0         a     a0 a1    ->    0 1   0 1
//   1         b     b0       ->    3     0
//   2         a     a2       ->    2     2
//
// A node is a machine (a hostname), not an agent: under mpirun every process of
// a machine may be a separate agent, and local_rank selects the device.
// Machines come in the order of their smallest launcher_rank, then by name; on
// one machine
// the order is launcher_rank, then the agent's name, then the agent's slot.

struct RankedMember {
  std::string worker_id;
  int rank = 0;
  int local_rank = 0;
  int local_world_size = 1;
  bool operator==(const RankedMember&) const = default;
};

// Sorted by rank. The order of `members` does not matter.
std::vector<RankedMember> assign_ranks(std::vector<Member> members);
// Assigns ranks to `members` only, but numbers local ranks over all `slots` of
// a machine: a worker whose neighbour is lost keeps its local_rank, and with it
// its device. The machine `first_host` comes first, if it takes part. REQUIRES:
// `slots` includes all of `members`.
std::vector<RankedMember> assign_ranks(const std::vector<Member>& members,
                                       std::vector<Member> slots,
                                       const std::string& first_host = "");

}  // namespace headroom::coordinator
