#include "coordinator/status_messages.h"

#include "parallel/base/utf8.h"
#include "proto/convert.h"

namespace headroom {

wire::Progress to_wire(const RunProgress& progress) {
  wire::Progress message;
  message.set_step(progress.step);
  message.set_num_steps(progress.num_steps);
  message.set_epoch(progress.epoch);
  message.set_num_epochs(progress.num_epochs);
  message.set_step_in_epoch(progress.step_in_epoch);
  message.set_steps_per_epoch(progress.steps_per_epoch);
  message.set_box(progress.box);
  message.set_obj(progress.obj);
  message.set_cls(progress.cls);
  message.set_images_per_second(progress.images_per_second);
  message.set_measured_peak_bytes(progress.measured_peak_bytes);
  message.set_predicted_peak_bytes(progress.predicted_peak_bytes);
  message.set_phase(valid_utf8(progress.phase));
  message.set_image_height(progress.image_height);
  message.set_image_width(progress.image_width);
  message.set_quiet_ms(progress.quiet_ms);
  message.set_median_step_ms(progress.median_step_ms);
  return message;
}

RunProgress from_wire(const wire::Progress& message) {
  RunProgress progress;
  progress.step = message.step();
  progress.num_steps = message.num_steps();
  progress.epoch = message.epoch();
  progress.num_epochs = message.num_epochs();
  progress.step_in_epoch = message.step_in_epoch();
  progress.steps_per_epoch = message.steps_per_epoch();
  progress.box = message.box();
  progress.obj = message.obj();
  progress.cls = message.cls();
  progress.images_per_second = message.images_per_second();
  progress.measured_peak_bytes = message.measured_peak_bytes();
  progress.predicted_peak_bytes = message.predicted_peak_bytes();
  progress.phase = message.phase();
  progress.image_height = message.image_height();
  progress.image_width = message.image_width();
  progress.quiet_ms = message.quiet_ms();
  progress.median_step_ms = message.median_step_ms();
  return progress;
}

wire::Event to_wire(const EventRecord& record) {
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

EventRecord from_wire(const wire::Event& message) {
  EventRecord record;
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
  *message.mutable_progress() = to_wire(status.progress);
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
  if (status.plan) *message.mutable_plan() = to_wire(*status.plan);
  message.set_result_json(valid_utf8(status.result_json));
  for (const EventRecord& record : status.events) {
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
  status.progress = from_wire(message.progress());
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
  if (message.has_plan()) status.plan = from_wire(message.plan());
  status.result_json = message.result_json();
  for (const wire::Event& entry : message.events()) {
    status.events.push_back(from_wire(entry));
  }
  return status;
}

}  // namespace headroom
