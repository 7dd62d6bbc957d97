#include "proto/convert.h"

#include <gmock/gmock.h>

#include <limits>
#include <set>
#include <string>

#include "parallel/base/check.h"

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
  *message.mutable_plan() = to_wire(example_plan());
  return message;
}

TEST(Convert, PlanComesBackAsItWasAfterTheWire) {
  const std::string bytes = to_wire(example_plan()).SerializeAsString();
  wire::Plan message;
  ASSERT_TRUE(message.ParseFromString(bytes));
  EXPECT_EQ(from_wire(message), example_plan());
}

TEST(Convert, EqualPredictionsOfThousandsOfRanksAreSentOnce) {
  plan::Plan plan = example_plan();
  plan.layout = {.pipeline_parallel_size = 2,
                 .data_parallel_size = 2048,
                 .spatial_parallel_size = 1};
  for (int rank = 0; rank < 4096; ++rank) {
    plan.predicted_peak_bytes.push_back(rank < 2048 ? 7 : 9);
    plan.predicted_phase_bytes.push_back({.training = rank < 2048 ? 7 : 9});
  }
  wire::Plan message = to_wire(plan);
  EXPECT_EQ(message.predicted_peak_bytes_size(), 2);
  EXPECT_LT(message.ByteSizeLong(), 200u);
  EXPECT_EQ(from_wire(message), plan);
  message.set_predicted_ranks(0, 2047);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(HasSubstr("has 4096 ranks")));
  message.set_predicted_ranks(0, 1 << 30);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(HasSubstr("predicted_ranks = ")));
  message.set_predicted_ranks(0, -1);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(HasSubstr("predicted_ranks = -1")));
}

TEST(Convert, AnAxisOfZeroIsRefusedByNameAndValue) {
  wire::ParallelLayout message = to_wire(example_plan().layout);
  message.set_data_parallel_size(0);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(HasSubstr("data_parallel_size = 0")));
}

TEST(Convert, ALayoutOfTooManyRanksIsRefusedWithoutOverflow) {
  wire::ParallelLayout message;
  message.set_pipeline_parallel_size(kMaxWorldSize);
  message.set_data_parallel_size(kMaxWorldSize);
  message.set_spatial_parallel_size(kMaxWorldSize);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(HasSubstr("more than 65536 ranks")));
}

TEST(Convert, AnUnknownBackendOrAMissingMicroBatchIsRefused) {
  wire::Plan message = to_wire(example_plan());
  message.set_backend(wire::BACKEND_UNSPECIFIED);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(HasSubstr("backend = 0")));
  message = to_wire(example_plan());
  message.set_micro_batch_size(-1);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(HasSubstr("micro_batch_size = -1")));
  message = to_wire(example_plan());
  message.set_batch_norm_group_size(std::numeric_limits<int64_t>::max());
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(HasSubstr("batch_norm_group_size")));
}

TEST(Convert, AZeroStageAPolicyOrStagesThatAreNoneAreRefused) {
  wire::Plan message = to_wire(example_plan());
  message.set_zero_stage(4);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(HasSubstr("zero_stage = 4")));
  message.set_zero_stage(-1);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(HasSubstr("zero_stage = -1")));
  message = to_wire(example_plan());
  message.add_activation_policies(wire::ACTIVATION_POLICY_UNSPECIFIED);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(HasSubstr("activation_policies = 0")));
  message = to_wire(example_plan());
  message.add_stage_begins(12);
  EXPECT_THAT(
      [&] { from_wire(message); },
      ThrowsMessage<Error>(HasSubstr("3 stages for a pipeline axis of 2")));
  message = to_wire(example_plan());
  message.set_stage_begins(1, 0);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(
                  HasSubstr("stage 1 begins at layer 0, the one before at 0")));
  message.set_stage_begins(0, 3);
  EXPECT_THAT([&] { from_wire(message); },
              ThrowsMessage<Error>(
                  HasSubstr("the first stage begins at layer 3, not at 0")));
  message = to_wire(example_plan());
  message.set_stage_begins(1, std::numeric_limits<int64_t>::max());
  EXPECT_THROW(from_wire(message), Error);
}

TEST(Convert, AnUndecidedBackendIsAProgrammersError) {
  plan::Plan plan = example_plan();
  plan.backend = plan::Backend::kAuto;
  EXPECT_THROW(to_wire(plan), CheckFailure);
}

TEST(Convert, AConsistentAssignmentPasses) {
  EXPECT_NO_THROW(check_assignment(example_assignment()));
}

TEST(Convert, WaitAndExitNeedNeitherRankNorPlan) {
  wire::Assignment message;
  message.set_action(wire::ACTION_WAIT);
  EXPECT_NO_THROW(check_assignment(message));
  message.set_action(wire::ACTION_EXIT);
  EXPECT_NO_THROW(check_assignment(message));
}

TEST(Convert, EveryDisagreementInAnAssignmentIsNamedWithBothNumbers) {
  wire::Assignment message = example_assignment();
  message.set_rank(24);
  EXPECT_THAT([&] { check_assignment(message); },
              ThrowsMessage<Error>(HasSubstr("rank = 24: world_size is 24")));
  message = example_assignment();
  message.set_rank(-1);
  EXPECT_THROW(check_assignment(message), Error);
  message = example_assignment();
  message.set_local_rank(-1);
  EXPECT_THAT([&] { check_assignment(message); },
              ThrowsMessage<Error>(HasSubstr("local_rank = -1: a machine")));
  message = example_assignment();
  message.set_local_world_size(25);
  EXPECT_THAT([&] { check_assignment(message); },
              ThrowsMessage<Error>(HasSubstr("local_world_size = 25")));
  message = example_assignment();
  message.set_world_size(23);
  EXPECT_THAT([&] { check_assignment(message); },
              ThrowsMessage<Error>(HasSubstr("has 24 ranks")));
  message = example_assignment();
  message.mutable_stamp()->set_generation(0);
  EXPECT_THAT([&] { check_assignment(message); },
              ThrowsMessage<Error>(HasSubstr("generation = 0")));
  message = example_assignment();
  message.set_action(static_cast<wire::Action>(17));
  EXPECT_THAT([&] { check_assignment(message); },
              ThrowsMessage<Error>(HasSubstr("action = 17")));
}

TEST(Convert, WhatAWorkerHasLeftWith_ComesBackAsItWas) {
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
  const LeftGeneration back = from_wire(to_wire(left));
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

TEST(Convert, EveryPhaseOfAWorker_ComesBack_AndAnUnknownNumberIsRefused) {
  std::set<std::string> names;
  for (int number = 0; number <= static_cast<int>(kLastWorkerPhase); ++number) {
    const RunProgress sent{.phase = static_cast<WorkerPhase>(number)};
    EXPECT_EQ(from_wire(to_wire(sent)).phase, sent.phase);
    names.insert(to_string(sent.phase));
  }
  EXPECT_EQ(names, (std::set<std::string>{"", "start", "train", "validate",
                                          "checkpoint", "pictures"}));
  wire::Progress unknown;
  unknown.set_phase(static_cast<int>(kLastWorkerPhase) + 1);
  EXPECT_THROW(from_wire(unknown), Error);
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
