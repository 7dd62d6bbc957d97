#include "deploy/cli/show/status_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;

coordinator::RunStatus running() {
  coordinator::RunStatus status;
  status.version = "0.1.0";
  status.generation = 1;
  status.state = coordinator::RunPhase::kRunning;
  status.reason = "2 of 2 workers joined";
  status.run_directory = "/runs/exp";
  status.progress = {.step = 14,
                     .num_steps = 780,
                     .epoch = 1,
                     .num_epochs = 60,
                     .step_in_epoch = 1,
                     .steps_per_epoch = 13,
                     .losses = {{"box", 0.1}, {"obj", 0.02}, {"cls", 0.03}},
                     .images_per_second = 58.3,
                     .phase = wire::WorkerPhase::kTrain};
  plan::Plan plan;
  plan.layout.data_parallel_size = 2;
  plan.micro_batch_size = 8;
  plan.batch_norm_group_size = 8;
  plan.reason = "data parallelism over all workers";
  status.plan = plan;
  coordinator::MemberStatus first;
  first.worker_id = "a-1-0";
  first.hostname = "a";
  first.rank = 0;
  first.heartbeat_age_seconds = 0.12;
  first.state = coordinator::MemberActivity::kRunning;
  first.measured_peak_bytes = 512 << 20;
  coordinator::MemberStatus second = first;
  second.worker_id = "a-1-1";
  second.rank = -1;
  second.state = coordinator::MemberActivity::kExpected;
  second.measured_peak_bytes = 0;
  status.members = {first, second};
  wire::EventRecord event;
  event.sequence = 1;
  event.event = EventKind::kGeneration;
  event.reason = "2 of 2 workers joined";
  event.time = "2026-11-21T08:23:00.123Z";
  event.detail_json = R"({"world_size": 2})";
  status.events = {event};
  return status;
}

TEST(StatusTable, ForPeople) {
  EXPECT_EQ(
      status_table(running()),
      "run        /runs/exp\n"
      "state      running, generation 1: 2 of 2 workers joined\n"
      "plan       " +
          plan::to_string(running().plan->layout) +
          ", micro-batch 8, batch-norm groups of 8, gloo: data parallelism "
          "over "
          "all workers\n"
          "progress   step 14/780  epoch 2/60  1/13  box 0.100 obj 0.020 cls "
          "0.030  58.3 img/s  512 MiB (predicted -)\n"
          "\n"
          "  rank  state     heartbeat  peak     host  worker\n"
          "  0     running   0.1 s      512 MiB  a     a-1-0\n"
          "  -     expected  -          -        a     a-1-1\n"
          "\n"
          "2026-11-21T08:23:00.123Z  generation  2 of 2 workers joined\n");
}

TEST(StatusTable, ZeroAndActivationsAreShownWhereUsed) {
  coordinator::RunStatus status = running();
  status.plan->zero_stage = 2;
  status.plan->activation_policies.assign(3,
                                          plan::ActivationPolicy::kRecompute);
  EXPECT_THAT(status_table(status), HasSubstr("batch-norm groups of 8, ZeRO 2, "
                                              "activations recompute, gloo"));
  const auto plan = nlohmann::json::parse(status_json(status))["plan"];
  EXPECT_EQ(plan["zero_stage"], 2);
  EXPECT_EQ(plan["activations"], "recompute");
  EXPECT_EQ(plan["stage_begins"].size(), 1u);
}

TEST(StatusTable, AsJson) {
  const auto json = nlohmann::json::parse(status_json(running()));
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["progress"]["step"], 14);
  EXPECT_EQ(json["members"].size(), 2u);
  EXPECT_EQ(json["members"][0]["rank"], 0);
  EXPECT_EQ(json["plan"]["micro_batch_size"], 8);
  EXPECT_EQ(json["events"][0]["detail"]["world_size"], 2);
  EXPECT_FALSE(json.contains("result"));
}

}  // namespace
}  // namespace headroom::cli
