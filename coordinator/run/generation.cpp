#include "coordinator/run/generation.h"

#include <utility>

#include "parallel/base/check.h"

namespace headroom::coordinator {

const RankedMember* Generation::find(const std::string& worker_id) const {
  for (const RankedMember& member : members) {
    if (member.worker_id == worker_id) return &member;
  }
  return nullptr;
}

Generation next_generation(const Generation& previous,
                           std::vector<RankedMember> members,
                           const plan::Plan& plan, const ResumePoint& begin,
                           const std::string& reason) {
  HEADROOM_CHECK(
      members.size() == static_cast<size_t>(plan.layout.world_size()),
      std::to_string(members.size()) + " members for " +
          plan::to_string(plan.layout));
  Generation next;
  next.number = previous.number + 1;
  next.members = std::move(members);
  next.plan = plan;
  next.begin = begin;
  next.reason = reason;
  return next;
}

std::optional<std::string> stamp_error(uint64_t generation,
                                       const std::string& run_digest,
                                       uint64_t current_generation,
                                       const std::string& current_run_digest,
                                       bool before_first) {
  const bool knows_run = !(before_first && run_digest.empty());
  if (knows_run && run_digest != current_run_digest) {
    return "the message is of run " +
           (run_digest.empty() ? "(none)" : run_digest) +
           ", this coordinator serves run " + current_run_digest;
  }
  if (before_first && generation == 0) return std::nullopt;
  if (generation != current_generation) {
    return "the message is of generation " + std::to_string(generation) +
           ", the run is at generation " + std::to_string(current_generation);
  }
  return std::nullopt;
}

}  // namespace headroom::coordinator
