// How each struct of the control plane is written into its message, and what is
// checked in a message beyond the types of its fields.
//
//   auto message = to_message<wire::FinishRequest>(finished);
//   auto finished = from_message<FinishedRun>(message);
//
// A message is not trusted: enums and plans are checked as they are read, and
// check_assignment() checks an assignment's numbers before anything sizes a
// loop or an allocation by them.
//
// Errors: from_message(), from_wire() and check_assignment() throw Error (tag
// "wire", exit 2) naming the field and the value.
#pragma once

#include "proto/coordinator.pb.h"
#include "proto/event_file.h"
#include "proto/message_fields.h"
#include "proto/reports.h"
#include "proto/run_progress.h"

namespace headroom::wire {

// The most ranks of one run.
inline constexpr int kMaxWorldSize = 65536;

void fields(auto& archive, Either<RunProgress> auto& progress) {
  archive("step", progress.step);
  archive("num_steps", progress.num_steps);
  archive("epoch", progress.epoch);
  archive("num_epochs", progress.num_epochs);
  archive("step_in_epoch", progress.step_in_epoch);
  archive("steps_per_epoch", progress.steps_per_epoch);
  archive("box", progress.box);
  archive("obj", progress.obj);
  archive("cls", progress.cls);
  archive("images_per_second", progress.images_per_second);
  archive("measured_peak_bytes", progress.measured_peak_bytes);
  archive("predicted_peak_bytes", progress.predicted_peak_bytes);
  archive("phase", progress.phase, kLastWorkerPhase);
  archive("image_height", progress.image_height);
  archive("image_width", progress.image_width);
  archive("quiet_ms", progress.quiet_ms);
  archive("median_step_ms", progress.median_step_ms);
  archive("images_validated", progress.images_validated);
  archive("images_to_validate", progress.images_to_validate);
}

// All but the kind: its name travels, see to_wire().
void fields(auto& archive, Either<EventRecord> auto& record) {
  archive("sequence", record.sequence);
  archive("step", record.step);
  archive("rank", record.rank);
  archive("reason", record.reason);
  archive("detail_json", record.detail_json);
  archive("warning", record.warning);
  archive("time", record.time);
  archive("report", record.report);
  archive("reporter", record.reporter);
  archive("ends_run", record.ends_run);
}

void fields(auto& archive, Either<headroom::MemoryShortfall> auto& shortfall) {
  archive("asked_bytes", shortfall.asked_bytes);
  archive("free_bytes", shortfall.free_bytes);
  archive("limit_bytes", shortfall.limit_bytes);
  archive("room_bytes", shortfall.room_bytes);
}

void fields(auto& archive, Either<NodeCard> auto& card) {
  archive("index", card.index);
  archive("uuid", card.uuid);
  archive("bus_address", card.bus_address);
  archive("name", card.name);
  archive("compute_capability", card.compute_capability);
  archive("total_bytes", card.total_bytes);
  archive("trouble", card.trouble);
}

// All but the version.
void fields(auto& archive, Either<NodeRegistration> auto& node) {
  archive("node_id", node.node_id);
  archive("hostname", node.hostname);
  archive("launcher_rank", node.launcher_rank);
  archive("worker_ids", node.worker_ids);
  archive("cards", node.cards);
  archive("no_card_reason", node.no_card_reason);
  archive("unusable_cards", node.unusable_cards);
  archive("launcher_size", node.launcher_size);
  archive("first_local_slot", node.first_local_slot);
}

void fields(auto& archive, Either<headroom::Card> auto& card) {
  archive("uuid", card.uuid);
  archive("name", card.name);
  archive("bus_address", card.bus_address);
}

void fields(auto& archive, Either<headroom::CardFault> auto& fault) {
  archive("kind", fault.kind, headroom::CardFault::Kind::kLeftOut);
  archive("card", fault.card);
  archive("words", fault.words);
}

// The reports below lack the stamp and the worker_id.
void fields(auto& archive, Either<WorkerFailure> auto& failure) {
  archive("exit_code", failure.exit_code);
  archive("message", failure.message);
  archive("kind", failure.kind, FailureKind::kConnection);
  archive("is_leaner", failure.is_leaner);
  archive("can_go_on", failure.can_go_on);
  archive("recorded_epochs", failure.recorded_epochs);
  archive("committed_steps", failure.committed_steps);
  archive("holds_a_part", failure.holds_a_part);
  archive("checkpoint_steps", failure.checkpoint_steps);
  archive("card_fault", failure.card_fault);
}

void fields(auto& archive, Either<LeftGeneration> auto& left) {
  archive("was_asked", left.was_asked);
  archive("committed_steps", left.committed_steps);
  archive("holds_a_part", left.holds_a_part);
  archive("checkpoint_steps", left.checkpoint_steps);
  archive("checkpoint", left.checkpoint);
  archive("result_json", left.result_json);
  archive("failed_rank", left.failed_rank);
  archive("shortfall", left.shortfall);
}

void fields(auto& archive, Either<FinishedRun> auto& finished) {
  archive("exit_code", finished.exit_code);
  archive("reason", finished.reason);
  archive("result_json", finished.result_json);
  archive("step", finished.step);
  archive("says_how_to_go_on", finished.says_how_to_go_on);
}

// Without the stamp, the action, the reason and the order's number.
void fields(auto& archive, Either<RankAssignment> auto& assignment) {
  archive("rank", assignment.rank);
  archive("local_rank", assignment.local_rank);
  archive("local_world_size", assignment.local_world_size);
  archive("world_size", assignment.world_size);
  archive("has_one_agent", assignment.has_one_agent);
  archive("keeps_state", assignment.keeps_state);
  archive("plan_json", assignment.plan);
  archive("run_config_yaml", assignment.run_config_yaml);
  archive("run_directory", assignment.run_directory);
  archive("resume_checkpoint", assignment.resume_checkpoint);
  archive("resume_steps", assignment.resume_steps);
  archive("left_out_cards", assignment.left_out_cards);
  archive("card_uuid", assignment.card_uuid);
}

wire::Event to_wire(const EventRecord& record);
EventRecord from_wire(const wire::Event& message);

// An assignment's numbers must agree with each other: 0 <= rank < world_size,
// 0 <= local_rank, 1 <= local_world_size <= world_size, the plan's layout has
// world_size ranks, the generation is at least 1, and the action is one that
// this build knows. Throws Error naming the first that does not. ACTION_WAIT
// and ACTION_EXIT need none of it: they have no rank and no plan.
void check_assignment(const wire::Assignment& message);

}  // namespace headroom::wire
