#include "coordinator/service/status_messages.h"

#include "parallel/base/utf8.h"
#include "proto/convert.h"

namespace headroom::coordinator {

wire::Event to_wire(const wire::EventRecord& record) {
  wire::Event message;
  message.set_sequence(record.sequence);
  message.set_event(valid_utf8(record.event));
  message.set_step(record.step);
  message.set_rank(record.rank);
  message.set_reason(valid_utf8(record.reason));
  message.set_detail_json(valid_utf8(record.detail_json));
  message.set_warning(record.warning);
  message.set_time(record.time);
  return message;
}

wire::EventRecord from_wire(const wire::Event& message) {
  wire::EventRecord record;
  record.sequence = message.sequence();
  record.event = message.event();
  record.step = message.step();
  record.rank = message.rank();
  record.reason = message.reason();
  record.detail_json = message.detail_json();
  record.warning = message.warning();
  record.time = message.time();
  return record;
}

wire::GetStatusResponse to_wire(const RunStatus& status) {
  wire::GetStatusResponse message;
  message.set_version(status.version);
  message.mutable_stamp()->set_generation(status.generation);
  message.mutable_stamp()->set_run_digest(status.run_digest);
  message.set_state(status.state);
  message.set_reason(valid_utf8(status.reason));
  message.set_exit_code(status.exit_code);
  message.set_run_directory(status.run_directory);
  *message.mutable_progress() = wire::to_wire(status.progress);
  for (const MemberStatus& member : status.members) {
    wire::MemberStatus* entry = message.add_members();
    entry->set_worker_id(member.worker_id);
    entry->set_node_id(member.node_id);
    entry->set_hostname(valid_utf8(member.hostname));
    entry->set_rank(member.rank);
    entry->set_heartbeat_age_seconds(member.heartbeat_age_seconds);
    entry->set_state(member.state);
    entry->set_measured_peak_bytes(member.measured_peak_bytes);
  }
  if (status.plan) *message.mutable_plan() = wire::to_wire(*status.plan);
  message.set_result_json(valid_utf8(status.result_json));
  for (const wire::EventRecord& record : status.events) {
    *message.add_events() = to_wire(record);
  }
  return message;
}

RunStatus from_wire(const wire::GetStatusResponse& message) {
  RunStatus status;
  status.version = message.version();
  status.run_digest = message.stamp().run_digest();
  status.generation = message.stamp().generation();
  status.state = message.state();
  status.reason = message.reason();
  status.exit_code = message.exit_code();
  status.run_directory = message.run_directory();
  status.progress = wire::from_wire(message.progress());
  for (const wire::MemberStatus& entry : message.members()) {
    MemberStatus member;
    member.worker_id = entry.worker_id();
    member.node_id = entry.node_id();
    member.hostname = entry.hostname();
    member.rank = entry.rank();
    member.heartbeat_age_seconds = entry.heartbeat_age_seconds();
    member.state = entry.state();
    member.measured_peak_bytes = entry.measured_peak_bytes();
    status.members.push_back(member);
  }
  if (message.has_plan()) status.plan = wire::from_wire(message.plan());
  status.result_json = message.result_json();
  for (const wire::Event& entry : message.events()) {
    status.events.push_back(from_wire(entry));
  }
  return status;
}

}  // namespace headroom::coordinator
