// Converts between protobuf messages and the structs of the program, with one
// pair of functions for each.
//
// Received data is not trusted: from_wire checks every number before it sizes a
// loop or an allocation, and its error names the field and the refused value.
//
// Errors: from_wire throws Error (tag "wire", exit 2).
#pragma once

#include "parallel/plan/plan.h"
#include "proto/coordinator.pb.h"
#include "proto/event_file.h"
#include "proto/reports.h"
#include "proto/run_progress.h"

namespace headroom::wire {

// Largest number of ranks of a run, and of each axis.
inline constexpr int kMaxWorldSize = 65536;

wire::ParallelLayout to_wire(const plan::ParallelLayout& layout);
// Throws unless all axes are >= 1 and their product <= kMaxWorldSize.
plan::ParallelLayout from_wire(const wire::ParallelLayout& message);

// REQUIRES: plan.backend is not kAuto, since a plan has chosen its backend.
wire::Plan to_wire(const plan::Plan& plan);
plan::Plan from_wire(const wire::Plan& message);

wire::Progress to_wire(const RunProgress& progress);
RunProgress from_wire(const wire::Progress& message);

wire::Event to_wire(const EventRecord& record);
EventRecord from_wire(const wire::Event& message);

wire::Shortfall to_wire(const headroom::MemoryShortfall& shortfall);
headroom::MemoryShortfall from_wire(const wire::Shortfall& message);

// Reports of agents and workers. Stamp, names and version are set elsewhere.
wire::RegisteredCard to_wire(const NodeCard& card);
NodeCard from_wire(const wire::RegisteredCard& message);
wire::RegisterRequest to_wire(const NodeRegistration& node);
NodeRegistration from_wire(const wire::RegisterRequest& message);
wire::RegisterResponse to_wire(const RegisteredRun& run);
RegisteredRun from_wire(const wire::RegisterResponse& message);
wire::ReportExitRequest to_wire(const WorkerExit& exit);
WorkerExit from_wire(const wire::ReportExitRequest& message);
wire::ReportExitResponse to_wire(const SuccessorOrder& order);
SuccessorOrder from_wire(const wire::ReportExitResponse& message);
wire::Card to_wire(const headroom::Card& card);
headroom::Card from_wire(const wire::Card& message);
wire::CardFault to_wire(const headroom::CardFault& fault);
headroom::CardFault from_wire(const wire::CardFault& message);
wire::ReportFailureRequest to_wire(const WorkerFailure& failure);
WorkerFailure from_wire(const wire::ReportFailureRequest& message);
wire::LeaveGenerationRequest to_wire(const LeftGeneration& left);
LeftGeneration from_wire(const wire::LeaveGenerationRequest& message);
wire::FinishRequest to_wire(const FinishedRun& finished);
FinishedRun from_wire(const wire::FinishRequest& message);

// All fields except the stamp, the action, the reason and the order's number.
wire::Assignment to_wire(const RankAssignment& assignment);
RankAssignment from_wire(const wire::Assignment& message);

// Checks that an assignment is consistent: 0 <= rank < world_size, 0 <=
// local_rank, 1 <= local_world_size <= world_size, the plan's layout has
// world_size ranks, the generation is at least 1, and the action is known.
// Throws Error naming the first violation. ACTION_WAIT and ACTION_EXIT have no
// rank and no plan, so only their action is checked.
void check_assignment(const wire::Assignment& message);

}  // namespace headroom::wire
