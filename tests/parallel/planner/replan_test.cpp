#include "parallel/planner/replan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "configs/flags.h"
#include "configs/layers/model_table.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan_parts.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kMiB = int64_t{1} << 20;

const std::vector<layers::LayerCost>& layers() {
  static const std::vector<layers::LayerCost> all =
      layers::layer_costs(layers::load_model_table("yolov5s"));
  return all;
}

configs::RunConfig request(const std::string& layout = "", int64_t zero = 0) {
  configs::RunConfig config;
  config.cfg = "yolov5s";
  config.global_batch_size = 16;
  config.image_height = 320;
  config.image_width = 320;
  if (!layout.empty()) config.layout = plan::parse_layout(layout);
  config.zero_stage = zero;
  return config;
}

plan::Plan plan_of(const configs::RunConfig& config, int world_size) {
  return plan_or_throw(config, world_size, layers());
}

// A shortage of memory; how much memory is missing is not known.
MemoryShortage some_shortage() {
  MemoryShortage shortage;
  shortage.step = 3;
  shortage.rank = 1;
  shortage.memory.asked_bytes = kMiB;
  shortage.memory.free_bytes = kMiB;
  return shortage;
}

// Checks the plan that `headroom train --resume` makes from these flags; flags
// of the plan that are not given have their default values.
void expect_resumed_plan_fits(configs::RunConfig config,
                              const std::string& flags, int world_size,
                              int64_t bytes) {
  SCOPED_TRACE(flags);
  config.layout.reset();
  config.zero_stage = config.micro_batch_size = config.memory_limit = 0;
  config.activations = "auto";
  config.resume = "the checkpoint";
  std::vector<configs::FlagUse> uses;
  std::istringstream words(flags);
  for (std::string flag, value; words >> flag >> value;)
    uses.push_back({flag, {value}});
  const PlanDecision decision =
      choose_plan(configs::overlay_flags(config, uses), world_size, layers());
  ASSERT_TRUE(decision.plan) << decision.reason;
  EXPECT_LE(fullest_rank_bytes(*decision.plan), bytes);
}

TEST(Replan, ThePlanAtItsLeanestNeedsLessThanAsItIs) {
  const configs::RunConfig config = request();
  const plan::Plan plan = plan_of(config, 2);
  const int64_t least = leanest_bytes(config, plan, layers());
  EXPECT_LT(least, fullest_rank_bytes(plan));
  plan::Plan lean = plan;
  lean.activation_policies.assign(layers().size(),
                                  plan::ActivationPolicy::kRecompute);
  EXPECT_EQ(leanest_bytes(config, lean, layers()), least);
}

TEST(Replan, TheNextPlanNeedsLessThanTheFailedOneAtItsLeanest) {
  const configs::RunConfig config = request();
  const plan::Plan failed = plan_of(config, 2);
  const Replan next =
      plan_after_shortage(config, failed, some_shortage(), layers());
  ASSERT_TRUE(next.plan) << next.reason;
  EXPECT_FALSE(next.plan->layout == failed.layout &&
               next.plan->zero_stage == failed.zero_stage);
  EXPECT_LE(fullest_rank_bytes(*next.plan),
            leanest_bytes(config, failed, layers()) * 95 / 100 + 1);
  EXPECT_EQ(next.plan->layout.world_size(), 2);
  EXPECT_EQ(next.reason, next.plan->reason);
  EXPECT_THAT(next.reason, StartsWith("instead of data=2"));
}

// Each plan is the one that fails next. The sequence must end, without
// repeating a plan.
TEST(Replan, ASequenceOfPlansEnds) {
  for (const int world_size : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(world_size);
    const configs::RunConfig config = request();
    plan::Plan failed = plan_of(config, world_size);
    int64_t needed = leanest_bytes(config, failed, layers());
    int plans = 0;
    for (;; ++plans) {
      ASSERT_LT(plans, 30);
      const Replan next =
          plan_after_shortage(config, failed, some_shortage(), layers());
      if (!next.plan) {
        EXPECT_THAT(next.reason, HasSubstr("no other plan"));
        break;
      }
      failed = *next.plan;
      const int64_t less = leanest_bytes(config, failed, layers());
      EXPECT_LE(less, needed * 95 / 100 + 1);
      needed = less;
    }
    EXPECT_EQ(plans > 0, world_size > 1);
  }
}

TEST(Replan, TheNextPlanFitsTheRoomThatThereIs) {
  const configs::RunConfig config = request();
  const plan::Plan failed = plan_of(config, 4);
  const int64_t needed = leanest_bytes(config, failed, layers());
  MemoryShortage shortage = some_shortage();
  shortage.memory.room_bytes = needed * 7 / 10;
  const Replan next = plan_after_shortage(config, failed, shortage, layers());
  ASSERT_TRUE(next.plan) << next.reason;
  EXPECT_LE(fullest_rank_bytes(*next.plan), shortage.memory.room_bytes);
  // More free memory than needed does not mean that the same amount can be
  // tried again.
  shortage.memory.room_bytes = 10 * needed;
  const Replan other = plan_after_shortage(config, failed, shortage, layers());
  ASSERT_TRUE(other.plan);
  EXPECT_LT(fullest_rank_bytes(*other.plan), needed);
}

TEST(Replan, TheMissingBytesCount) {
  const configs::RunConfig config = request();
  const plan::Plan failed = plan_of(config, 4);
  const int64_t needed = leanest_bytes(config, failed, layers());
  MemoryShortage shortage = some_shortage();
  shortage.memory.asked_bytes = shortage.memory.free_bytes + needed * 3 / 10;
  const Replan next = plan_after_shortage(config, failed, shortage, layers());
  ASSERT_TRUE(next.plan) << next.reason;
  EXPECT_LE(fullest_rank_bytes(*next.plan), needed * 7 / 10 + 1);
}

TEST(Replan, GroupsStayAsTheyAre) {
  configs::RunConfig config = request();
  config.batch_norm_group_size = 4;
  const plan::Plan failed = plan_of(config, 2);
  const Replan next =
      plan_after_shortage(config, failed, some_shortage(), layers());
  ASSERT_TRUE(next.plan) << next.reason;
  EXPECT_EQ(next.plan->batch_norm_group_size, 4);
}

TEST(Replan, AGivenLayoutStaysAndItsShardingMayRise) {
  const configs::RunConfig config = request("data=2");
  const plan::Plan failed = plan_of(config, 2);
  const Replan next =
      plan_after_shortage(config, failed, some_shortage(), layers());
  ASSERT_TRUE(next.plan) << next.reason;
  EXPECT_EQ(next.plan->layout, failed.layout);
  EXPECT_GT(next.plan->zero_stage, 0);
}

TEST(Replan, ARefusalNamesTheFlagThatForbids) {
  configs::RunConfig config = request("data=2", 1);
  config.memory_limit = 4096 * kMiB;
  const plan::Plan failed = plan_of(config, 2);
  const Replan next =
      plan_after_shortage(config, failed, some_shortage(), layers());
  EXPECT_FALSE(next.plan);
  EXPECT_THAT(next.reason, HasSubstr("--zero 1 forbids another plan"));
  EXPECT_THAT(next.reason, Not(HasSubstr("\n")));
  EXPECT_THAT(next.resume_flags,
              StartsWith("--layout data=2,pipeline=1,spatial=1 --zero "));
  expect_resumed_plan_fits(config, next.resume_flags, 2,
                           leanest_bytes(config, failed, layers()) * 95 / 100);
}

TEST(Replan, WhereMoreProcessesFitTheyAreNamed) {
  const configs::RunConfig config = request();
  const plan::Plan failed = plan_of(config, 1);
  const int64_t needed = leanest_bytes(config, failed, layers());
  const Replan next =
      plan_after_shortage(config, failed, some_shortage(), layers());
  EXPECT_FALSE(next.plan);
  EXPECT_THAT(next.resume_flags, HasSubstr("--processes "));
  const std::string flag = "--processes ";
  const int processes = std::stoi(
      next.resume_flags.substr(next.resume_flags.find(flag) + flag.size()));
  expect_resumed_plan_fits(config, next.resume_flags, processes,
                           needed * 95 / 100 + 1);
}

TEST(Replan, WithoutARemedyBothNumbersAreReported) {
  const configs::RunConfig config = request();
  const plan::Plan failed = plan_of(config, 1);
  MemoryShortage shortage = some_shortage();
  shortage.memory.room_bytes = 7 * kMiB;
  const Replan next = plan_after_shortage(config, failed, shortage, layers());
  EXPECT_FALSE(next.plan);
  EXPECT_THAT(next.reason, HasSubstr("at its leanest where 7 MiB may be had"));
  EXPECT_THAT(next.reason, HasSubstr("no other plan of 1 process fits"));
  EXPECT_EQ(next.resume_flags, "");
  EXPECT_FALSE(plan_after_shortage(config, failed, shortage, {}).plan);
}

// Under a container's limit the planner offloads only if the user asks for it.
TEST(Replan, UnderTheMachinesLimitNothingIsOffloadedUnasked) {
  configs::RunConfig config = request();
  config.device = "cpu";
  config.synthetic_input = true;
  plan::Plan failed = plan_of(config, 1);
  const auto is_next = [&] {
    const auto next = plan_after_host_shortage(config, failed, layers());
    return next && plan::offloads(next->plan) ? "offloads"
           : next                             ? "does not offload"
                                              : "none";
  };
  EXPECT_STREQ(is_next(), "does not offload");
  const int64_t all = leanest_bytes(config, failed, layers());
  config.memory_limit_is_machines = true;
  EXPECT_GT(leanest_bytes(config, failed, layers()), all);
  // The leanest plan without offload was killed.
  config.activations = "recompute";
  failed = plan_of(config, 1);
  config.activations = "auto";
  EXPECT_STREQ(is_next(), "none");
  failed.activation_policies.assign(layers().size(),
                                    plan::ActivationPolicy::kOffload);
  EXPECT_STREQ(is_next(), "offloads");  // as the failed plan did
}

TEST(Replan, TheTextOfTheShortage) {
  MemoryShortage shortage;
  shortage.step = 3;
  shortage.rank = 1;
  EXPECT_EQ(describe(shortage),
            "step 3, rank 1: out of memory with the leanest activations");
  shortage.memory.asked_bytes = 2 * kMiB;
  shortage.memory.free_bytes = kMiB;
  EXPECT_EQ(describe(shortage),
            "step 3, rank 1: out of memory with the leanest activations: asked "
            "for 2 MiB, 1 MiB of the machine's memory free");
  shortage.memory.limit_bytes = 100 * kMiB;
  EXPECT_EQ(describe(shortage),
            "step 3, rank 1: out of memory with the leanest activations: asked "
            "for 2 MiB, 1 MiB of the 100 MiB of --memory-limit free");
}

}  // namespace
}  // namespace headroom::planner
