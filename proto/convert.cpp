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

void check_assignment(const wire::Assignment& message) {
  switch (message.action()) {
    case wire::ACTION_WAIT:
    case wire::ACTION_EXIT:
      return;
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
  if (message.world_size() < 1 || message.world_size() > kMaxWorldSize) {
    throw bad_field("world_size", message.world_size(),
                    cat("a run has 1 to ", kMaxWorldSize, " ranks"));
  }
  if (message.rank() < 0 || message.rank() >= message.world_size()) {
    throw bad_field("rank", message.rank(),
                    cat("world_size is ", message.world_size()));
  }
  if (message.local_world_size() < 1 ||
      message.local_world_size() > message.world_size()) {
    throw bad_field("local_world_size", message.local_world_size(),
                    cat("world_size is ", message.world_size()));
  }
  if (message.local_rank() < 0 || message.local_rank() >= kMaxWorldSize) {
    throw bad_field("local_rank", message.local_rank(),
                    cat("a machine has at most ", kMaxWorldSize, " workers"));
  }
  const plan::ParallelLayout layout =
      plan_of_message(message.plan_json()).layout;
  if (layout.world_size() != message.world_size()) {
    throw bad_field("world_size", message.world_size(),
                    cat("the plan's layout ", plan::to_string(layout), " has ",
                        layout.world_size(), " ranks"));
  }
}

}  // namespace headroom::wire
