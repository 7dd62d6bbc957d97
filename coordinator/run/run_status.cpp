#include "coordinator/run/run_status.h"

#include <chrono>

#include "coordinator/run/run_state.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::coordinator {

std::string to_string(RunPhase phase) {
  switch (phase) {
    case RunPhase::kWaiting:
      return "waiting";
    case RunPhase::kRunning:
      return "running";
    case RunPhase::kRegrouping:
      return "regrouping";
    case RunPhase::kStopping:
      return "stopping";
    case RunPhase::kFinished:
      return "finished";
    case RunPhase::kFailed:
      return "failed";
  }
  HEADROOM_CHECK(false, cat("phase ", static_cast<int>(phase)));
}

std::string to_string(MemberActivity activity) {
  switch (activity) {
    case MemberActivity::kExpected:
      return "expected";
    case MemberActivity::kJoined:
      return "joined";
    case MemberActivity::kRunning:
      return "running";
    case MemberActivity::kGone:
      return "gone";
  }
  HEADROOM_CHECK(false, cat("activity ", static_cast<int>(activity)));
}

std::string to_string(const LeftOutCard& card) {
  return to_string(card.card) + " on " + card.hostname + ": " + card.reason;
}

std::vector<MemberStatus> member_statuses(
    TimePoint now, const Membership& membership, const Generation& generation,
    const std::map<std::string, int64_t>& measured_peak_bytes) {
  std::vector<MemberStatus> statuses;
  for (const Member& member : membership.members()) {
    MemberStatus entry;
    entry.worker_id = member.worker_id;
    entry.node_id = member.node_id;
    entry.hostname = member.hostname;
    if (const RankedMember* ranked = generation.find(member.worker_id)) {
      entry.rank = ranked->rank;
    }
    switch (member.state) {
      case MemberState::kExpected:
        entry.state = MemberActivity::kExpected;
        break;
      case MemberState::kJoined:
        entry.state =
            entry.rank < 0 ? MemberActivity::kJoined : MemberActivity::kRunning;
        break;
      case MemberState::kGone:
        entry.state = MemberActivity::kGone;
        break;
    }
    if (member.state != MemberState::kExpected) {
      entry.heartbeat_age_seconds =
          std::chrono::duration<double>(now - member.last_seen).count();
    }
    const auto peak = measured_peak_bytes.find(member.worker_id);
    if (peak != measured_peak_bytes.end()) {
      entry.measured_peak_bytes = peak->second;
    }
    statuses.push_back(entry);
  }
  return statuses;
}

RunStatus RunState::status(TimePoint now) const {
  RunStatus status;
  status.generation = generation().number;
  status.state = phase_;
  status.reason = reason_;
  for (const auto& [rank, what] : slow_ranks_) {
    if (!what.empty() && !over()) status.reason += "; " + what;
  }
  status.exit_code = exit_code_;
  status.says_how_to_go_on = says_how_to_go_on_;
  status.run_directory = options_.run_directory;
  status.folder = folder();
  status.progress = progress_;
  status.memory_limit = config_.memory_limit;
  status.result_json = result_json_;
  if (generation().number > 0) status.plan = generation().plan;
  status.members =
      member_statuses(now, membership_, generation(), measured_peak_bytes_);
  for (const CardFailure& failure : cards_.left_out()) {
    status.left_out_cards.push_back(
        {failure.fault.card, failure.hostname, failure.reason});
  }
  return status;
}

}  // namespace headroom::coordinator
