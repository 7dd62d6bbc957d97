#include "proto/convert.h"

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "parallel/plan/plan_json.h"

namespace headroom::wire {
namespace {

Error bad_field(const std::string& field, int64_t value,
                const std::string& rule) {
  return Error("wire", cat(field, " = ", value, ": ", rule),
               "install the same build on every node");
}

}  // namespace

plan::Plan plan_of_message(const std::string& plan_json) {
  try {
    return plan::plan_from_json(plan_json, "a message's plan");
  } catch (const Error& error) {
    throw Error("wire", error.text(), "install the same build on every node");
  }
}

wire::Event to_wire(const EventRecord& record) {
  auto message = to_message<wire::Event>(record);
  message.set_event(to_string(record.event));
  return message;
}

EventRecord from_wire(const wire::Event& message) {
  auto record = from_message<EventRecord>(message);
  const auto kind = parse_event_kind(message.event());
  if (!kind) {
    throw Error("wire",
                "an event of the unknown kind '" +
                    printable(message.event().substr(0, 64)) + "'",
                "install the same build on every node");
  }
  record.event = *kind;
  return record;
}

std::optional<RankAssignment> assignment_of(const wire::Assignment& message) {
  switch (message.action()) {
    case wire::ACTION_WAIT:
    case wire::ACTION_EXIT:
      return std::nullopt;
    case wire::ACTION_RUN:
    case wire::ACTION_SAVE_AND_EXIT:
      break;
    default:
      throw bad_field("action", message.action(),
                      "this build does not know it");
  }
  if (message.stamp().generation() < 1) {
    throw bad_field("generation", 0, "generations count from 1");
  }
  const auto assignment = from_message<RankAssignment>(message);
  const int world_size = assignment.world_size;
  if (world_size < 1 || world_size > kMaxWorldSize) {
    throw bad_field("world_size", world_size,
                    cat("a run has 1 to ", kMaxWorldSize, " ranks"));
  }
  const std::string in_world = cat("world_size is ", world_size);
  if (assignment.rank < 0 || assignment.rank >= world_size) {
    throw bad_field("rank", assignment.rank, in_world);
  }
  if (assignment.local_world_size < 1 ||
      assignment.local_world_size > world_size) {
    throw bad_field("local_world_size", assignment.local_world_size, in_world);
  }
  if (assignment.local_rank < 0 || assignment.local_rank >= kMaxWorldSize) {
    throw bad_field("local_rank", assignment.local_rank,
                    cat("a machine has at most ", kMaxWorldSize, " workers"));
  }
  const plan::ParallelLayout& layout = assignment.plan.layout;
  if (layout.world_size() != world_size) {
    throw bad_field("world_size", world_size,
                    cat("the plan's layout ", plan::to_string(layout), " has ",
                        layout.world_size(), " ranks"));
  }
  return assignment;
}

}  // namespace headroom::wire
