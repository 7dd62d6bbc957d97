#include "coordinator/service/status_messages.h"

#include "proto/message_fields.h"

namespace headroom::coordinator {

void fields(auto& archive, wire::Either<MemberStatus> auto& member) {
  archive("worker_id", member.worker_id);
  archive("node_id", member.node_id);
  archive("hostname", member.hostname);
  archive("rank", member.rank);
  archive("heartbeat_age_seconds", member.heartbeat_age_seconds);
  archive("state", member.state);
  archive("measured_peak_bytes", member.measured_peak_bytes);
}

// All but the stamp.
void fields(auto& archive, wire::Either<RunStatus> auto& status) {
  archive("version", status.version);
  archive("state", status.state);
  archive("reason", status.reason);
  archive("exit_code", status.exit_code);
  archive("ended_by_signal", status.ended_by_signal);
  archive("run_directory", status.run_directory);
  archive("progress", status.progress);
  archive("members", status.members);
  archive("plan", status.plan);
  archive("result_json", status.result_json);
  archive("events", status.events);
  archive("memory_limit", status.memory_limit);
}

wire::GetStatusResponse to_wire(const RunStatus& status) {
  auto message = wire::to_message<wire::GetStatusResponse>(status);
  message.mutable_stamp()->set_generation(status.generation);
  message.mutable_stamp()->set_run_digest(status.run_digest);
  return message;
}

RunStatus from_wire(const wire::GetStatusResponse& message) {
  auto status = wire::from_message<RunStatus>(message);
  status.run_digest = message.stamp().run_digest();
  status.generation = message.stamp().generation();
  return status;
}

}  // namespace headroom::coordinator
