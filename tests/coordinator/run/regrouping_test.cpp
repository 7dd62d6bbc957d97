// Tests the change from one generation to the next at a committed step.
#include "coordinator/run/regrouping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "configs/layers/model_table.h"
#include "coordinator/run/run_state.h"
#include "tests/coordinator/run/scripted_run.h"

namespace headroom::coordinator {
namespace {

using ::testing::HasSubstr;

Leaving leaving(int64_t steps, int64_t asked, int64_t room = 0) {
  Leaving one;
  one.from = {steps, "/runs/exp/checkpoints/step-" + std::to_string(steps)};
  one.shortage.step = steps;
  one.shortage.rank = 1;
  one.shortage.memory.asked_bytes = asked;
  one.shortage.memory.room_bytes = room;
  return one;
}

// Two workers of a running run whose layer costs are known.
class Regroup : public ::testing::Test {
 protected:
  Regroup() {
    run.start();
    run.commit(3);
  }
  static RunOptions options() {
    RunOptions options = ScriptedRun::options(2);
    options.layers = layers::layer_costs(layers::load_model_table("yolov5s"));
    return options;
  }
  static configs::RunConfig config() {
    configs::RunConfig config = ScriptedRun::config();
    config.cfg = "yolov5s";
    return config;
  }
  std::optional<std::string> leave(int k, const Leaving& one) {
    return run.leaves(ScriptedRun::worker(k), one);
  }

  ScriptedRun run{options(), config()};
};

TEST_F(Regroup, OnceAllHaveLeftTheNextGenerationStarts) {
  const plan::Plan before = run.generation().plan;
  EXPECT_EQ(leave(1, leaving(3, 4096)), std::nullopt);
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  EXPECT_EQ(run.reason(), "1 of 2 workers have left generation 1");
  EXPECT_EQ(run.orders(), "");
  EXPECT_EQ(leave(0, leaving(3, 1)), std::nullopt);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_EQ(run.orders(), "w0:run w1:run");
  const Generation& generation = run.generation();
  EXPECT_EQ(generation.number, 2u);
  EXPECT_EQ(generation.begin, (ResumePoint{3, "/runs/exp/checkpoints/step-3"}));
  EXPECT_EQ(generation.find("w0")->rank, 0);
  EXPECT_EQ(generation.find("w1")->rank, 1);
  EXPECT_NE(generation.plan, before);
  const std::vector<wire::EventRecord> events = run.state.take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].event, EventKind::kGeneration);
  EXPECT_EQ(events[0].step, 3);
  EXPECT_THAT(events[0].reason,
              HasSubstr("generation 2: step 3, rank 1: out of memory"));
  EXPECT_THAT(events[0].reason, HasSubstr("asked for 4 KiB"));
  EXPECT_THAT(events[0].detail_json,
              HasSubstr(R"("checkpoint":"/runs/exp/checkpoints/step-3")"));
  EXPECT_EQ(events[1].event, EventKind::kPlan);
  EXPECT_THAT(events[1].reason, HasSubstr("instead of data=2"));
  // The next generation ends like any other.
  EXPECT_EQ(
      run.finish("w0", {.reason = "done", .result_json = "{}", .step = 9}),
      std::nullopt);
  EXPECT_EQ(run.phase(), RunPhase::kFinished);
}

TEST_F(Regroup, WithoutAnotherPlanTheRunEndsAtItsCheckpoint) {
  Leaving first = leaving(3, 4096, 1 << 20);
  first.result_json = "{\"steps\":3}";
  leave(0, first);
  leave(1, leaving(3, 4096, 2 << 20));
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.exit_code(), 5);
  EXPECT_THAT(run.reason(), HasSubstr("where 1 MiB may be had"));
  EXPECT_THAT(run.reason(),
              HasSubstr("the state after 3 steps is saved, continue with: "
                        "headroom train --resume /runs/exp"));
  EXPECT_EQ(run.state.status(run.now).result_json, "{\"steps\":3}");
  EXPECT_EQ(run.orders(), "w0:exit w1:exit");
  EXPECT_EQ(run.events(), "run_over");
}

TEST_F(Regroup, ALossMeanwhileIsMadeGoodFromTheCheckpoint) {
  leave(0, leaving(3, 1));
  run.exits("w1");
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  EXPECT_EQ(run.orders(), "");
  run.succeed(1);
  EXPECT_EQ(run.orders(), "w0:run w1.1:run");
  EXPECT_EQ(run.generation().begin,
            (ResumePoint{3, "/runs/exp/checkpoints/step-3"}));
}

TEST_F(Regroup, ALossWithAMemberThatLeftForMemoryContinuesFromTheCheckpoint) {
  run.exits("w1");
  leave(0, leaving(3, 1));
  run.pass(5000, {1});
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_EQ(run.generation().members.size(), 1u);
  EXPECT_EQ(run.generation().begin.checkpoint, "/runs/exp/checkpoints/step-3");
}

TEST_F(Regroup, ADrainMeanwhileEndsItWith130) {
  leave(0, leaving(3, 1));
  run.state.drain(run.now, "Ctrl-C");
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  leave(1, leaving(3, 1));
  EXPECT_EQ(run.phase(), RunPhase::kFinished);
  EXPECT_EQ(run.exit_code(), 130);
  EXPECT_THAT(run.reason(), HasSubstr("--resume /runs/exp"));
  EXPECT_TRUE(run.state.status(run.now).says_how_to_go_on);
}

TEST_F(Regroup, AMemberThatSendsHeartbeatsButNeverLeavesIsLost) {
  leave(0, leaving(3, 1));
  run.pass(129 * 1000);
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  run.pass(1200);
  EXPECT_EQ(run.to_be_killed(), std::vector<std::string>{"w1"});
  EXPECT_TRUE(run.exits("w1").restart);
}

TEST_F(Regroup, OnlyMembersLeave) {
  EXPECT_EQ(run.leaves("z", leaving(3, 1)),
            "worker z is no member of generation 1");
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
}

TEST(Regrouping, TheLeastRoomOfAllAndTheFailedRanksBytes) {
  std::vector<RankedMember> members(3);
  Regrouping regrouping;
  for (int rank = 0; rank < 3; ++rank) {
    members[static_cast<size_t>(rank)].rank = rank;
    const std::string worker = "w" + std::to_string(rank);
    members[static_cast<size_t>(rank)].worker_id = worker;
    // Rank 0 reports that it does not know how much memory it has left. Of the
    // other ranks, rank 2 has the least.
    regrouping.left[worker] =
        leaving(3, 100 + rank, rank == 0 ? 0 : 1000 - rank);
  }
  const planner::MemoryShortage shortage = shortage_of(regrouping, members);
  EXPECT_EQ(shortage.memory.asked_bytes, 101);
  EXPECT_EQ(shortage.memory.room_bytes, 998);
}

TEST(Regrouping, ALivingMemberThatHasNotLeftIsWaitedFor) {
  Membership membership(3);
  Node node;
  node.node_id = "n";
  node.worker_ids = {"w0", "w1", "w2"};
  std::vector<RankedMember> members;
  membership.register_node(TimePoint(), node);
  for (const std::string& worker : node.worker_ids) {
    membership.join(TimePoint(), worker, "n");
    members.emplace_back().worker_id = worker;
  }
  membership.leave("w2");
  Regrouping regrouping;
  regrouping.left["w0"] = leaving(3, 1);
  const auto waited_for = still_to_leave(regrouping, members, membership);
  ASSERT_EQ(waited_for.size(), 1u);
  EXPECT_EQ(waited_for[0].worker_id, "w1");
  regrouping.left["w1"] = leaving(3, 1);
  EXPECT_TRUE(still_to_leave(regrouping, members, membership).empty());
}

RegroupingView view(int ready, int coming, int elapsed_ms) {
  RegroupingView view;
  view.ready = ready;
  view.coming = coming;
  view.wanted = 4;
  view.min_processes = 2;
  view.elapsed = std::chrono::milliseconds(elapsed_ms);
  return view;
}

TEST(DecideRegrouping, WaitsForStartsForFiveSecondsAndForTheLeastForMinutes) {
  using Kind = RegroupingDecision::Kind;
  struct Case {
    RegroupingView view;
    Kind kind;
    std::string reason;
  };
  for (const Case& expected : {
           Case{view(4, 0, 0), Kind::kForm, "4 of 4 workers are there"},
           Case{view(5, 1, 0), Kind::kForm, "5 of 4 workers are there"},
           Case{view(3, 1, 4999), Kind::kWait,
                "3 of 4 workers are there, 1 is coming"},
           Case{view(3, 1, 5000), Kind::kForm, "3 of 4 workers are there"},
           Case{view(3, 0, 0), Kind::kForm, "3 of 4 workers are there"},
           Case{view(1, 0, 599999), Kind::kWait,
                "1 of 4 workers are there, --min-processes 2 are needed"},
           Case{view(1, 0, 600000), Kind::kGiveUp,
                "1 of 4 workers are there, --min-processes 2 are needed"},
           Case{view(0, 0, 9000), Kind::kWait,
                "0 of 4 workers are there, --min-processes 2 are needed"},
       }) {
    const RegroupingDecision decision = decide_regrouping(expected.view, {});
    EXPECT_EQ(decision.kind, expected.kind) << expected.reason;
    EXPECT_EQ(decision.reason, expected.reason);
  }
  RegroupingView nobody = view(0, 0, 30000);
  nobody.has_agent = false;
  EXPECT_EQ(decide_regrouping(nobody, {}).reason, "nobody is left");
  nobody.elapsed = std::chrono::milliseconds(29999);
  EXPECT_EQ(decide_regrouping(nobody, {}).kind, Kind::kWait);
}

}  // namespace
}  // namespace headroom::coordinator
