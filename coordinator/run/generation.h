// Generation: one membership with its ranks, its plan and the state it starts
// from, under a number that only rises.
//
// The number is the fence: a message of another generation, or of another run,
// is refused by number before anything looks at its content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/quorum.h"
#include "coordinator/run/regrouping.h"
#include "parallel/plan/plan.h"

namespace headroom::coordinator {

struct Generation {
  uint64_t number = 0;                // 0: none yet
  std::vector<RankedMember> members;  // in the order of their ranks
  plan::Plan plan;
  ResumePoint begin;
  std::string reason;  // in words

  // Null if the worker is no member.
  const RankedMember* find(const std::string& worker_id) const;
};

// REQUIRES: members.size() == plan.layout.world_size().
Generation next_generation(const Generation& previous,
                           std::vector<RankedMember> members,
                           const plan::Plan& plan, const ResumePoint& begin,
                           const std::string& reason);

// Nothing if a message stamped with `generation` and `run_digest` belongs to
// the current generation of this run, else why not, with both numbers.
// `before_first`: the sender may not know of a generation or digest yet, and
// says 0 and "".
std::optional<std::string> stamp_error(uint64_t generation,
                                       const std::string& run_digest,
                                       uint64_t current_generation,
                                       const std::string& current_run_digest,
                                       bool before_first);

}  // namespace headroom::coordinator
