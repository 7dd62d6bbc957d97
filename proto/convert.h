// Lists the fields of each struct of the control plane that are written into
// its message, and checks the values in messages.
//
//   auto message = to_message<wire::FinishRequest>(finished);
//   auto finished = from_message<FinishedRun>(message);
//
// A message is not trusted: enums and plans are checked as they are read, and
// assignment_of() checks an assignment's numbers before they determine the size
// of a loop or an allocation.
//
// Errors: from_message(), from_wire() and assignment_of() throw Error (tag
// "wire", exit 2) naming the field and the value.
#pragma once

#include "proto/coordinator.pb.h"
#include "proto/event_file.h"
#include "proto/message_fields.h"
#include "proto/reports.h"
#include "proto/run_progress.h"

namespace headroom {

constexpr CardFault::Kind last_of(CardFault::Kind) {
  return CardFault::Kind::kWrong;
}

}  // namespace headroom

namespace headroom::wire {

constexpr WorkerPhase last_of(WorkerPhase) { return kLastWorkerPhase; }
constexpr FailureKind last_of(FailureKind) { return FailureKind::kConnection; }

// The most ranks of one run.
inline constexpr int kMaxWorldSize = 65536;

HEADROOM_FIELDS(headroom::NamedLoss, name, value)

HEADROOM_FIELDS(RunProgress, step, num_steps, epoch, num_epochs, step_in_epoch,
                steps_per_epoch, losses, images_per_second, measured_peak_bytes,
                predicted_peak_bytes, phase, image_height, image_width,
                quiet_ms, core_wait_ms, median_step_ms, images_validated,
                images_to_validate)

// All fields except the event's kind: to_wire() writes its name.
HEADROOM_FIELDS(EventRecord, sequence, step, rank, reason, detail_json, warning,
                time, report, reporter, ends_run)

HEADROOM_FIELDS(headroom::MemoryShortfall, asked_bytes, free_bytes, limit_bytes,
                room_bytes)

HEADROOM_FIELDS(NodeCard, index, uuid, bus_address, name, compute_capability,
                total_bytes, trouble)

// All fields of RegisterRequest except the version.
HEADROOM_FIELDS(NodeRegistration, node_id, hostname, launcher_rank, worker_ids,
                cards, no_card_reason, unusable_cards, launcher_size,
                first_local_slot)

HEADROOM_FIELDS(headroom::Card, uuid, name, bus_address)

HEADROOM_FIELDS(headroom::CardFault, kind, card, words)

// The reports below omit the stamp and the worker_id of their messages.
HEADROOM_FIELDS(WorkerFailure, exit_code, message, kind, is_leaner, can_go_on,
                recorded_epochs, committed_steps, holds_a_part,
                checkpoint_steps, card_fault)

HEADROOM_FIELDS(LeftGeneration, was_asked, committed_steps, holds_a_part,
                checkpoint_steps, checkpoint, result_json, failed_rank,
                shortfall, float16_error)

HEADROOM_FIELDS(FinishedRun, exit_code, reason, result_json, step,
                says_how_to_go_on)

HEADROOM_FIELDS(headroom::FolderPlace, run_id, hostname, node_id, steps)

// All fields of Assignment except the stamp, action, reason and order number.
HEADROOM_FIELDS(RankAssignment, rank, local_rank, local_world_size, world_size,
                has_one_agent, keeps_state, plan, run_config_yaml,
                run_directory, resume_checkpoint, resume_steps, left_out_cards,
                card_uuid, node_id, folder)

wire::Event to_wire(const EventRecord& record);
EventRecord from_wire(const wire::Event& message);

// Returns the assignment in a message with ACTION_RUN or ACTION_SAVE_AND_EXIT;
// nullopt for the other actions. The numbers must agree with each other: 0 <=
// rank < world_size, 0 <= local_rank, 1 <= local_world_size <= world_size, the
// plan's layout has world_size ranks, and the generation is at least 1. Throws
// Error naming the first number that does not agree, or an unknown action.
std::optional<RankAssignment> assignment_of(const wire::Assignment& message);

}  // namespace headroom::wire
