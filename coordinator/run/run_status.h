// RunStatus: the state and progress of a run, as plain values for display.
//
// The coordinator fills it; `headroom status`, the progress line and tests read
// it. It contains no protobuf type.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/membership.h"
#include "coordinator/run/regrouping.h"
#include "parallel/base/card.h"
#include "parallel/base/folder_place.h"
#include "parallel/plan/plan.h"
#include "proto/event_file.h"
#include "proto/run_progress.h"

namespace headroom::coordinator {

enum class RunPhase {
  kWaiting,
  kRunning,
  kRegrouping,
  kStopping,
  kFinished,
  kFailed
};
inline constexpr std::array kRunPhases = {
    RunPhase::kWaiting,  RunPhase::kRunning,  RunPhase::kRegrouping,
    RunPhase::kStopping, RunPhase::kFinished, RunPhase::kFailed};
std::string to_string(RunPhase phase);

// A worker's state for display: kRunning has a rank, kJoined has none yet.
enum class MemberActivity { kExpected, kJoined, kRunning, kGone };
inline constexpr std::array kMemberActivities = {
    MemberActivity::kExpected, MemberActivity::kJoined,
    MemberActivity::kRunning, MemberActivity::kGone};
std::string to_string(MemberActivity activity);

struct MemberStatus {
  std::string worker_id;
  std::string node_id;
  std::string hostname;
  int rank = -1;  // -1 before the first generation
  double heartbeat_age_seconds = 0;
  MemberActivity state = MemberActivity::kExpected;
  int64_t measured_peak_bytes = 0;
};

// A card on which no worker is started any more.
struct LeftOutCard {
  Card card;
  std::string hostname;
  std::string reason;  // the driver's message, and why it is left out
};
// "NVIDIA H100 (GPU-…, 0000:1b:00.0) on HOST: REASON".
std::string to_string(const LeftOutCard& card);

std::vector<MemberStatus> member_statuses(
    TimePoint now, const Membership& membership, const Generation& generation,
    const std::map<std::string, int64_t>& measured_peak_bytes);

struct RunStatus {
  std::string version;
  std::string run_digest;
  uint64_t generation = 0;
  RunPhase state = RunPhase::kWaiting;
  std::string reason;              // why the run is in this state
  int exit_code = 0;               // set once the run has finished or failed
  bool says_how_to_go_on = false;  // `reason` contains the resume command
  std::string run_directory;
  FolderPlace folder;          // the machine that has it
  wire::RunProgress progress;  // the progress in rank 0's newest report
  std::vector<MemberStatus> members;
  std::optional<plan::Plan> plan;  // set once a generation exists
  std::vector<LeftOutCard> left_out_cards;
  std::string result_json;  // summary.json's content, once finished
  std::vector<wire::EventRecord> events;  // the newest 20, oldest first
  int64_t memory_limit = 0;               // per process; 0 if there is no limit

  bool over() const {
    return state == RunPhase::kFinished || state == RunPhase::kFailed;
  }
};

}  // namespace headroom::coordinator
