// Messages <-> the structs they stand for, one pair of functions each.
//
// What comes off the wire is not trusted: from_wire checks every number before
// anybody sizes a loop or an allocation by it, and names the field and the
// value it refuses.
//
// Errors: from_wire throws Error (tag "wire", exit 2).
#pragma once

#include "parallel/plan/plan.h"
#include "proto/coordinator.pb.h"
#include "proto/event_file.h"
#include "proto/run_progress.h"

namespace headroom::wire {

// Ranks of one run; also a bound on each axis.
inline constexpr int kMaxWorldSize = 65536;

wire::ParallelLayout to_wire(const plan::ParallelLayout& layout);
// Every axis is at least 1 and their product at most kMaxWorldSize.
plan::ParallelLayout from_wire(const wire::ParallelLayout& message);

// REQUIRES: plan.backend is not kAuto: a plan has decided.
wire::Plan to_wire(const plan::Plan& plan);
plan::Plan from_wire(const wire::Plan& message);

wire::Progress to_wire(const RunProgress& progress);
RunProgress from_wire(const wire::Progress& message);

wire::Event to_wire(const EventRecord& record);
EventRecord from_wire(const wire::Event& message);

// An assignment's numbers must agree with each other: 0 <= rank < world_size,
// 0 <= local_rank < local_world_size <= world_size, the plan's layout has
// world_size ranks, the generation is at least 1, and the action is one that
// this build knows. Throws Error naming the first that does not; ACTION_WAIT
// and ACTION_EXIT carry no rank and no plan, and are not held to that.
void check_assignment(const wire::Assignment& message);

}  // namespace headroom::wire
