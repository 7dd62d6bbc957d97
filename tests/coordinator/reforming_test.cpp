// From one generation to the next at a committed step.
#include "coordinator/reforming.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "configs/model_table.h"
#include "coordinator/run_state.h"
#include "tests/coordinator/scripted_run.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;

Leaving leaving(int64_t steps, int64_t asked, int64_t room = 0) {
  Leaving one;
  one.from = {steps, "/runs/exp/checkpoints/step-" + std::to_string(steps)};
  one.shortage.step = steps;
  one.shortage.rank = 1;
  one.shortage.asked_bytes = asked;
  one.shortage.room_bytes = room;
  return one;
}

// Two workers of a run whose rows are known, running.
class Reform : public ::testing::Test {
 protected:
  Reform() {
    run.start();
    run.state.committed(3, std::nullopt);
  }
  static RunOptions options() {
    RunOptions options = ScriptedRun::options(2);
    options.rows = row_costs(load_model_table("yolov5s"));
    return options;
  }
  static RunConfig config() {
    RunConfig config = ScriptedRun::config();
    config.cfg = "yolov5s";
    return config;
  }
  std::optional<std::string> leave(int k, const Leaving& one) {
    return run.state.generation_left(run.now, ScriptedRun::worker(k), one);
  }

  ScriptedRun run{options(), config()};
};

TEST_F(Reform, OnceAllHaveLeftTheNextGenerationStarts) {
  const Plan before = run.state.generation().plan;
  EXPECT_EQ(leave(1, leaving(3, 4096)), std::nullopt);
  EXPECT_EQ(run.state.phase(), RunPhase::kReforming);
  EXPECT_EQ(run.state.reason(), "1 of 2 workers have left generation 1");
  EXPECT_EQ(run.orders(), "");
  EXPECT_EQ(leave(0, leaving(3, 1)), std::nullopt);
  EXPECT_EQ(run.state.phase(), RunPhase::kRunning);
  EXPECT_EQ(run.orders(), "w0:run w1:run");
  const Generation& generation = run.state.generation();
  EXPECT_EQ(generation.number, 2u);
  EXPECT_EQ(generation.begin, (ResumePoint{3, "/runs/exp/checkpoints/step-3"}));
  EXPECT_EQ(generation.find("w0")->rank, 0);
  EXPECT_EQ(generation.find("w1")->rank, 1);
  EXPECT_NE(generation.plan, before);
  const std::vector<EventRecord> events = run.state.take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].event, "generation");
  EXPECT_EQ(events[0].step, 3);
  EXPECT_THAT(events[0].reason,
              HasSubstr("generation 2: step 3, rank 1: out of memory"));
  EXPECT_THAT(events[0].reason, HasSubstr("asked for 4 KiB"));
  EXPECT_THAT(events[0].detail_json,
              HasSubstr(R"("checkpoint":"/runs/exp/checkpoints/step-3")"));
  EXPECT_EQ(events[1].event, "plan");
  EXPECT_THAT(events[1].reason, HasSubstr("instead of data=2"));
  // The next generation ends as any.
  EXPECT_EQ(run.state.finish(run.now, "w0", 0, "done", "{}", 9), std::nullopt);
  EXPECT_EQ(run.state.phase(), RunPhase::kFinished);
}

TEST_F(Reform, WithoutAnotherPlanTheRunEndsAtItsCheckpoint) {
  Leaving first = leaving(3, 4096, 1 << 20);
  first.result_json = "{\"steps\":3}";
  leave(0, first);
  leave(1, leaving(3, 4096, 2 << 20));
  EXPECT_EQ(run.state.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.state.exit_code(), 5);
  EXPECT_THAT(run.state.reason(), HasSubstr("where 1 MiB may be had"));
  EXPECT_THAT(run.state.reason(),
              HasSubstr("the state after 3 steps is saved, continue with: "
                        "headroom train --resume /runs/exp"));
  EXPECT_EQ(run.state.status(run.now).result_json, "{\"steps\":3}");
  EXPECT_EQ(run.orders(), "w0:exit w1:exit");
  EXPECT_EQ(run.events(), "run_over");
}

TEST_F(Reform, ALossMeanwhileEndsTheRunAndNobodySavesAgain) {
  leave(0, leaving(3, 1));
  run.state.worker_exited(run.now, "w1", 137, "");
  EXPECT_EQ(run.orders(), "w0:exit");
  EXPECT_EQ(run.state.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.state.exit_code(), 5);
  EXPECT_EQ(run.state.reason(),
            "rank 1 (worker w1) on h was killed by signal 9 (SIGKILL); the "
            "state after 3 steps is saved, continue with: headroom train "
            "--resume /runs/exp");
}

TEST_F(Reform, WhoLeavesAfterALossHasNothingToSave) {
  run.state.worker_disconnected(run.now, "w1");
  EXPECT_EQ(run.state.phase(), RunPhase::kStopping);
  leave(0, leaving(3, 1));
  run.state.worker_exited(run.now, "w1", 137, "");
  EXPECT_EQ(run.orders(), "w0:exit");
  EXPECT_EQ(run.state.phase(), RunPhase::kFailed);
  EXPECT_THAT(run.state.reason(), HasSubstr("after 3 steps is saved"));
}

TEST_F(Reform, ADrainMeanwhileEndsItWith130) {
  leave(0, leaving(3, 1));
  run.state.drain(run.now, "Ctrl-C");
  EXPECT_EQ(run.state.phase(), RunPhase::kReforming);
  leave(1, leaving(3, 1));
  EXPECT_EQ(run.state.phase(), RunPhase::kFinished);
  EXPECT_EQ(run.state.exit_code(), 130);
  EXPECT_THAT(run.state.reason(), HasSubstr("--resume /runs/exp"));
}

TEST_F(Reform, WhoSpeaksButNeverLeavesIsLost) {
  leave(0, leaving(3, 1));
  run.pass(129 * 1000);
  EXPECT_EQ(run.state.phase(), RunPhase::kReforming);
  run.pass(2 * 1000);
  EXPECT_EQ(run.state.phase(), RunPhase::kFailed);
  EXPECT_THAT(run.state.reason(), HasSubstr("did not leave its generation"));
  EXPECT_THAT(run.state.reason(), HasSubstr("after 3 steps is saved"));
}

TEST_F(Reform, OnlyMembersLeave) {
  EXPECT_EQ(run.state.generation_left(run.now, "z", leaving(3, 1)),
            "worker z is no member of generation 1");
  EXPECT_EQ(run.state.phase(), RunPhase::kRunning);
}

TEST(Reforming, TheLeastRoomOfAllAndTheFailedRanksBytes) {
  std::vector<RankedMember> members(3);
  Reforming reforming;
  for (int rank = 0; rank < 3; ++rank) {
    members[static_cast<size_t>(rank)].rank = rank;
    const std::string worker = "w" + std::to_string(rank);
    members[static_cast<size_t>(rank)].worker_id = worker;
    // Rank 0 knows no room, rank 2 has least.
    reforming.left[worker] =
        leaving(3, 100 + rank, rank == 0 ? 0 : 1000 - rank);
  }
  const MemoryShortage shortage = shortage_of(reforming, members);
  EXPECT_EQ(shortage.asked_bytes, 101);
  EXPECT_EQ(shortage.room_bytes, 998);
  EXPECT_TRUE(still_to_leave(reforming, members).empty());
  reforming.left.erase("w1");
  ASSERT_EQ(still_to_leave(reforming, members).size(), 1u);
  EXPECT_EQ(still_to_leave(reforming, members)[0].worker_id, "w1");
}

}  // namespace
}  // namespace headroom
