#include "coordinator/service/status_messages.h"

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/utf8.h"
#include "proto/convert.h"

namespace headroom::coordinator {

namespace {

// Returns the state with the name `word`; throws Error if there is none.
template <typename State>
State state_of(const std::string& word, const auto& known) {
  for (const State state : known) {
    if (to_string(state) == word) return state;
  }
  throw Error("wire", "a state is called '" + printable(word) + "'",
              "install the same build on every node");
}

}  // namespace

// All fields except the state, which the message contains as a name.
HEADROOM_FIELDS(MemberStatus, worker_id, node_id, hostname, rank,
                heartbeat_age_seconds, measured_peak_bytes)

HEADROOM_FIELDS(LeftOutCard, card, hostname, reason)

// All fields except the stamp and the state.
HEADROOM_FIELDS(RunStatus, version, reason, exit_code, says_how_to_go_on,
                run_directory, folder, progress, members, plan, result_json,
                events, memory_limit, left_out_cards)

wire::GetStatusResponse to_wire(const RunStatus& status) {
  auto message = wire::to_message<wire::GetStatusResponse>(status);
  message.mutable_stamp()->set_generation(status.generation);
  message.mutable_stamp()->set_run_digest(status.run_digest);
  message.set_state(to_string(status.state));
  for (size_t i = 0; i < status.members.size(); ++i) {
    message.mutable_members(static_cast<int>(i))
        ->set_state(to_string(status.members[i].state));
  }
  return message;
}

RunStatus from_wire(const wire::GetStatusResponse& message) {
  auto status = wire::from_message<RunStatus>(message);
  status.run_digest = message.stamp().run_digest();
  status.generation = message.stamp().generation();
  status.state = state_of<RunPhase>(message.state(), kRunPhases);
  for (size_t i = 0; i < status.members.size(); ++i) {
    status.members[i].state = state_of<MemberActivity>(
        message.members(static_cast<int>(i)).state(), kMemberActivities);
  }
  return status;
}

}  // namespace headroom::coordinator
