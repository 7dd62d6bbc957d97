#include "coordinator/service/status_messages.h"

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/utf8.h"
#include "proto/convert.h"

namespace headroom::coordinator {

namespace {

// Throws Error for any other text.
template <typename State>
State state_of(const std::string& word, const auto& known) {
  for (const State state : known) {
    if (to_string(state) == word) return state;
  }
  throw Error("wire", "a state is called '" + printable(word) + "'",
              "install the same build on every node");
}

}  // namespace

// All fields but the states, which have names on the wire.
void fields(auto& archive, wire::Either<MemberStatus> auto& member) {
  archive("worker_id", member.worker_id);
  archive("node_id", member.node_id);
  archive("hostname", member.hostname);
  archive("rank", member.rank);
  archive("heartbeat_age_seconds", member.heartbeat_age_seconds);
  archive("measured_peak_bytes", member.measured_peak_bytes);
}

void fields(auto& archive, wire::Either<LeftOutCard> auto& card) {
  archive("card", card.card);
  archive("hostname", card.hostname);
  archive("reason", card.reason);
}

// All fields but the stamp and the state.
void fields(auto& archive, wire::Either<RunStatus> auto& status) {
  archive("version", status.version);
  archive("reason", status.reason);
  archive("exit_code", status.exit_code);
  archive("says_how_to_go_on", status.says_how_to_go_on);
  archive("run_directory", status.run_directory);
  archive("progress", status.progress);
  archive("members", status.members);
  archive("plan_json", status.plan);
  archive("result_json", status.result_json);
  archive("events", status.events);
  archive("memory_limit", status.memory_limit);
  archive("left_out_cards", status.left_out_cards);
}

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
