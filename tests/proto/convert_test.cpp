#include "proto/convert.h"

#include <gmock/gmock.h>

#include <limits>
#include <set>
#include <string>

#include "parallel/base/check.h"
#include "parallel/plan/plan_json.h"

namespace headroom::wire {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

plan::Plan example_plan() {
  plan::Plan plan;
  plan.layout = {.pipeline_parallel_size = 2,
                 .data_parallel_size = 3,
                 .spatial_parallel_size = 4};
  plan.backend = plan::Backend::kMpi;
  plan.micro_batch_size = 5;
  plan.batch_norm_group_size = 10;
  plan.even_batch_norm_groups = true;
  plan.reason = "because";
  plan.zero_stage = 3;
  plan.stage_begins = {0, 9};
  plan.activation_policies = {
      plan::ActivationPolicy::kRecompute, plan::ActivationPolicy::kKeep,
      plan::ActivationPolicy::kLean, plan::ActivationPolicy::kOffload};
  return plan;
}

wire::Assignment example_assignment() {
  wire::Assignment message;
  message.mutable_stamp()->set_generation(1);
  message.set_action(wire::ACTION_RUN);
  message.set_rank(3);
  message.set_local_rank(1);
  message.set_local_world_size(2);
  message.set_world_size(24);
  message.set_plan_json(plan::plan_to_message(example_plan()));
  return message;
}

TEST(Convert, APlanIsReadBackFromItsAssignment) {
  const auto back = assignment_of(example_assignment());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->plan, example_plan());
}

TEST(Convert, ATextThatIsNoPlanIsRefused) {
  wire::Assignment message = example_assignment();
  message.set_plan_json("{}");
  EXPECT_THAT([&] { from_message<RankAssignment>(message); },
              ThrowsMessage<Error>(AllOf(
                  HasSubstr("[wire] a message's plan: 'layout' is missing"),
                  HasSubstr("install the same build on every node"))));
}

TEST(Convert, WaitAndExitNeedNeitherRankNorPlan) {
  wire::Assignment message;
  message.set_action(wire::ACTION_WAIT);
  EXPECT_FALSE(assignment_of(message));
  message.set_action(wire::ACTION_EXIT);
  EXPECT_FALSE(assignment_of(message));
}

TEST(Convert, EveryDisagreementInAnAssignmentIsNamedWithBothNumbers) {
  const auto expect_refused = [](const std::string& why, const auto& change) {
    wire::Assignment message = example_assignment();
    change(message);
    EXPECT_THAT([&] { assignment_of(message); },
                ThrowsMessage<Error>(HasSubstr(why)));
  };
  expect_refused("rank = 24: world_size is 24",
                 [](auto& message) { message.set_rank(24); });
  expect_refused("rank = -1", [](auto& message) { message.set_rank(-1); });
  expect_refused("local_rank = -1: a machine",
                 [](auto& message) { message.set_local_rank(-1); });
  expect_refused("local_world_size = 25",
                 [](auto& message) { message.set_local_world_size(25); });
  expect_refused("has 24 ranks",
                 [](auto& message) { message.set_world_size(23); });
  expect_refused("generation = 0", [](auto& message) {
    message.mutable_stamp()->set_generation(0);
  });
  expect_refused("action = 17", [](auto& message) {
    message.set_action(static_cast<wire::Action>(17));
  });
}

TEST(Convert, TheReasonWithWhichAWorkerLeft_IsReadBackUnchanged) {
  const LeftGeneration left = {.was_asked = true,
                               .committed_steps = 7,
                               .holds_a_part = true,
                               .checkpoint_steps = 5,
                               .checkpoint = "/runs/exp/checkpoints/step-7",
                               .result_json = "{}",
                               .failed_rank = 3,
                               .shortfall = {.asked_bytes = 11,
                                             .free_bytes = 12,
                                             .limit_bytes = 13,
                                             .room_bytes = 14}};
  const LeftGeneration back = from_message<LeftGeneration>(
      to_message<wire::LeaveGenerationRequest>(left));
  EXPECT_EQ(back.was_asked, left.was_asked);
  EXPECT_EQ(back.committed_steps, left.committed_steps);
  EXPECT_EQ(back.holds_a_part, left.holds_a_part);
  EXPECT_EQ(back.checkpoint_steps, left.checkpoint_steps);
  EXPECT_EQ(back.checkpoint, left.checkpoint);
  EXPECT_EQ(back.result_json, left.result_json);
  EXPECT_EQ(back.failed_rank, left.failed_rank);
  EXPECT_EQ(back.shortfall.asked_bytes, left.shortfall.asked_bytes);
  EXPECT_EQ(back.shortfall.free_bytes, left.shortfall.free_bytes);
  EXPECT_EQ(back.shortfall.limit_bytes, left.shortfall.limit_bytes);
  EXPECT_EQ(back.shortfall.room_bytes, left.shortfall.room_bytes);
}

TEST(Convert, EveryPhaseOfAWorker_IsReadBack_AndAnUnknownNumberIsRefused) {
  std::set<std::string> names;
  for (int number = 0; number <= static_cast<int>(kLastWorkerPhase); ++number) {
    RunProgress sent;
    sent.phase = static_cast<WorkerPhase>(number);
    EXPECT_EQ(from_message<RunProgress>(to_message<wire::Progress>(sent)).phase,
              sent.phase);
    names.insert(to_string(sent.phase));
  }
  EXPECT_EQ(names, (std::set<std::string>{"", "start", "train", "validate",
                                          "checkpoint", "pictures"}));
  wire::Progress unknown;
  unknown.set_phase(static_cast<int>(kLastWorkerPhase) + 1);
  EXPECT_THROW(from_message<RunProgress>(unknown), Error);
}

TEST(Convert, AnEventOfAnUnknownKind_IsRefused) {
  EventRecord record;
  record.event = EventKind::kCheckpoint;
  wire::Event message = to_wire(record);
  EXPECT_EQ(message.event(), "checkpoint");
  EXPECT_EQ(from_wire(message).event, EventKind::kCheckpoint);
  message.set_event("lunch\x1b");
  EXPECT_THROW(from_wire(message), Error);
}

}  // namespace
}  // namespace headroom::wire
