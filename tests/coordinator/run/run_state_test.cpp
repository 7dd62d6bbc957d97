// Tests a run from the first registration to a normal end.
#include "coordinator/run/run_state.h"

#include <gtest/gtest.h>

#include "tests/coordinator/run/scripted_run.h"

namespace headroom::coordinator {
namespace {

TEST(RunState, ReportsWhatItWaitsFor) {
  ScriptedRun run(2);
  EXPECT_EQ(run.phase(), RunPhase::kWaiting);
  EXPECT_EQ(run.reason(), "no agent has registered yet");
  run.register_node();
  EXPECT_EQ(run.reason(),
            "0 of 2 workers have joined; missing: w0 on h, w1 on h");
  run.join(1);
  EXPECT_EQ(run.reason(), "1 of 2 workers have joined; missing: w0 on h");
  EXPECT_EQ(run.orders(), "");
  EXPECT_EQ(run.generation().number, 0u);
}

TEST(RunState, TheLastJoinFormsGenerationOne) {
  ScriptedRun run(2);
  run.register_node();
  run.join(1);
  run.join(0);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_EQ(run.reason(), "all 2 workers have joined");
  EXPECT_EQ(run.orders(), "w0:run w1:run");
  EXPECT_EQ(run.events(), "join join devices generation plan");
  const Generation& generation = run.generation();
  EXPECT_EQ(generation.number, 1u);
  EXPECT_EQ(generation.find("w0")->rank, 0);
  EXPECT_EQ(generation.find("w1")->rank, 1);
  EXPECT_EQ(generation.plan.micro_batch_size, 8);
}

TEST(RunState, TheGenerationsEventListsItsMembers) {
  ScriptedRun run(1);
  run.register_node();
  run.join(0);
  const std::vector<wire::EventRecord> events = run.state.take_events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[1].reason, "CPU, fp32");
  EXPECT_EQ(events[2].reason, "generation 1: the only worker has joined");
  EXPECT_EQ(events[2].detail_json,
            R"({"generation":1,"world_size":1,"workers":)"
            R"([{"rank":0,"worker_id":"w0","hostname":"h"}]})");
  EXPECT_EQ(events[3].event, EventKind::kPlan);
  EXPECT_EQ(events[3].detail_json.substr(0, 18), R"({"plan":{"layout":)");
}

TEST(RunState, AnUnwelcomeAgentOrWorkerIsRefusedWithAReason) {
  ScriptedRun run(1);
  run.register_node();
  EXPECT_EQ(run.state.join(run.now, "z", "n"),
            "worker z belongs to no registered node");
  Node other;
  other.node_id = "m";
  other.worker_ids = {"z"};
  EXPECT_EQ(run.state.register_node(run.now, other),
            "node m offers 1 worker, but 1 of this run's 1 are "
            "registered");
}

TEST(RunState, WaitingForWorkersHasAnEnd) {
  ScriptedRun run(2);
  run.pass(20 * 60 * 1000);  // while there is no agent, the wait has no limit
  EXPECT_EQ(run.phase(), RunPhase::kWaiting);
  run.register_node();
  run.join(0);
  run.orders();
  run.pass(600 * 1000, {1});
  EXPECT_EQ(run.phase(), RunPhase::kWaiting);
  run.pass(100, {1});
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.exit_code(), 5);
  EXPECT_EQ(run.reason(),
            "1 of 2 workers have joined; missing: w1 on h; gave up after "
            "600 s");
  EXPECT_EQ(run.orders(), "w0:exit");
}

TEST(RunState, FinishEndsAllWorkersAndAgents) {
  ScriptedRun run(2);
  run.start();
  EXPECT_EQ(run.finish("w0", {.result_json = "{\"map50\":0.8}", .step = 100}),
            std::nullopt);
  EXPECT_EQ(run.phase(), RunPhase::kFinished);
  EXPECT_EQ(run.exit_code(), 0);
  EXPECT_EQ(run.reason(), "finished after 100 steps");
  EXPECT_EQ(run.orders(), "w0:exit w1:exit");
  const RunStatus status = run.state.status(run.now);
  EXPECT_EQ(status.result_json, "{\"map50\":0.8}");
  EXPECT_EQ(status.progress.step, 100);
  const std::vector<wire::EventRecord> events = run.state.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].event, EventKind::kRunOver);
  EXPECT_EQ(events[0].detail_json, R"({"exit_code":0,"state":"finished"})");
}

TEST(RunState, TheStatusNamesASlowRankUntilItRecovers) {
  ScriptedRun run(2);
  run.start();
  const auto reason = [&] { return run.state.status(run.now).reason; };
  const std::string before = reason();
  run.state.note_speed(1, "rank 1 on h is slow");
  EXPECT_EQ(reason(), before + "; rank 1 on h is slow");
  run.state.note_speed(1, "");
  EXPECT_EQ(reason(), before);
}

TEST(RunState, OnlyRankZeroFinishes) {
  ScriptedRun run(2);
  run.start();
  EXPECT_EQ(run.finish("w1", {.step = 100}),
            "only rank 0 ends a run, or the worker that was told to save; "
            "worker w1 is rank 1");
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
}

TEST(RunState, TheExitCodeOfAFinishDecidesItsState) {
  for (const auto& [code, phase] :
       {std::pair(0, RunPhase::kFinished), std::pair(130, RunPhase::kFinished),
        std::pair(5, RunPhase::kFailed), std::pair(4, RunPhase::kFailed)}) {
    ScriptedRun run(1);
    run.start();
    run.finish("w0", {.exit_code = code, .reason = "why", .step = 3});
    EXPECT_EQ(run.phase(), phase) << code;
    EXPECT_EQ(run.exit_code(), code);
    EXPECT_EQ(run.reason(), "why");
  }
}

TEST(RunState, TheEndIsFinal) {
  ScriptedRun run(2);
  run.start();
  run.finish("w0", {.reason = "done", .result_json = "{}", .step = 100});
  run.orders();
  run.events();
  run.finish("w0", {.exit_code = 5, .reason = "again", .step = 1});
  run.state.drain(run.now, "late");
  run.state.stop(run.now, "late");
  run.complain(1, 3);
  run.fails("w1", {2, "late"});
  run.exits("w1", 139, "segfault");
  run.disconnects("w0");
  run.pass(10000, {0, 1}, false);
  EXPECT_EQ(run.phase(), RunPhase::kFinished);
  EXPECT_EQ(run.exit_code(), 0);
  EXPECT_EQ(run.reason(), "done");
  EXPECT_EQ(run.orders(), "");
  EXPECT_EQ(run.events(), "");
}

TEST(RunState, ADrainBeforeTheBeginningEndsAtOnceWith130) {
  ScriptedRun run(2);
  run.register_node();
  run.join(0);
  run.state.drain(run.now, "Ctrl-C");
  EXPECT_EQ(run.phase(), RunPhase::kFinished);
  EXPECT_EQ(run.exit_code(), 130);
  EXPECT_EQ(run.reason(), "interrupted before the run began: Ctrl-C");
  EXPECT_EQ(run.orders(), "w0:exit");
}

TEST(RunState, ADrainWhileRunningIsARequest) {
  ScriptedRun run(2);
  run.start();
  EXPECT_FALSE(run.state.stop_requested());
  run.state.drain(run.now, "Ctrl-C");
  run.state.drain(run.now, "Ctrl-C");
  EXPECT_TRUE(run.state.stop_requested());
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_EQ(run.orders(), "");
  EXPECT_EQ(run.events(), "drain");
  run.finish(
      "w0",
      {.exit_code = 130, .reason = "interrupted after 7 steps", .step = 7});
  EXPECT_EQ(run.exit_code(), 130);
}

TEST(RunState, AStopEndsAtOnce) {
  ScriptedRun run(2);
  run.start();
  run.state.stop(run.now, "asked");
  EXPECT_EQ(run.phase(), RunPhase::kFinished);
  EXPECT_EQ(run.exit_code(), 130);
  EXPECT_EQ(run.reason(), "the coordinator was stopped: asked");
  EXPECT_EQ(run.orders(), "w0:exit w1:exit");
}

TEST(RunState, AWorkerThatJoinsAfterTheEndIsToldToExit) {
  ScriptedRun run(2);
  run.register_node();
  run.state.drain(run.now, "Ctrl-C");
  run.join(1);
  EXPECT_EQ(run.orders(), "w1:exit");
}

TEST(RunState, ProgressNeverDecreases) {
  ScriptedRun run(2);
  run.start();
  wire::RunProgress progress;
  progress.step = 5;
  progress.epoch = 1;
  run.state.committed(5, progress);
  progress.step = 4;
  progress.epoch = 0;
  run.state.worker_heartbeat(run.now, "w0", progress);
  run.state.committed(4, progress);
  EXPECT_EQ(run.state.status(run.now).progress.step, 5);
  EXPECT_EQ(run.state.status(run.now).progress.epoch, 1);
  progress.step = 5;
  progress.epoch = 2;
  run.state.worker_heartbeat(run.now, "w0", progress);
  EXPECT_EQ(run.state.status(run.now).progress.epoch, 2);
}

TEST(RunState, OnlyRankZerosProgressIsTheRuns) {
  ScriptedRun run(2);
  run.start();
  wire::RunProgress progress;
  progress.step = 9;
  progress.measured_peak_bytes = 123;
  run.state.worker_heartbeat(run.now, "w1", progress);
  const RunStatus status = run.state.status(run.now);
  EXPECT_EQ(status.progress.step, 0);
  EXPECT_EQ(status.members[1].measured_peak_bytes, 123);
  EXPECT_EQ(status.members[0].measured_peak_bytes, 0);
}

TEST(RunState, TheStatusShowsEveryMember) {
  ScriptedRun run(2);
  run.register_node();
  run.join(0);
  run.now += std::chrono::milliseconds(1500);
  RunStatus status = run.state.status(run.now);
  EXPECT_EQ(status.state, RunPhase::kWaiting);
  EXPECT_FALSE(status.plan);
  ASSERT_EQ(status.members.size(), 2u);
  EXPECT_EQ(status.members[0].state, MemberActivity::kJoined);
  EXPECT_EQ(status.members[0].rank, -1);
  EXPECT_DOUBLE_EQ(status.members[0].heartbeat_age_seconds, 1.5);
  EXPECT_EQ(status.members[1].state, MemberActivity::kExpected);
  run.join(1);
  status = run.state.status(run.now);
  EXPECT_EQ(status.state, RunPhase::kRunning);
  EXPECT_EQ(status.members[1].state, MemberActivity::kRunning);
  EXPECT_EQ(status.members[1].rank, 1);
  EXPECT_TRUE(status.plan);
  EXPECT_EQ(status.run_directory, "/runs/exp");
}

TEST(EverybodyTold, NeedsTheEndTheWorkersTheAgentsAndTheFollowers) {
  ScriptedRun run(2);
  run.start();
  EXPECT_FALSE(run.state.everybody_told(run.now, true));
  run.finish("w0", {.step = 1});
  EXPECT_FALSE(run.state.everybody_told(run.now, true));
  run.disconnects("w0");
  run.exits("w1", 0, "");
  EXPECT_FALSE(run.state.everybody_told(run.now, true));
  run.state.node_heartbeat(run.now, "n");
  EXPECT_TRUE(run.state.everybody_told(run.now, true));
  EXPECT_FALSE(run.state.everybody_told(run.now, false));
}

TEST(EverybodyTold, ASilentAgentIsNotWaitedFor) {
  ScriptedRun run(1);
  run.start();
  run.finish("w0", {.step = 1});
  run.disconnects("w0");
  run.state.note_hangup("n");
  run.pass(2000, {0}, false);
  EXPECT_FALSE(run.state.everybody_told(run.now, true));
  run.pass(100, {0}, false);
  EXPECT_TRUE(run.state.everybody_told(run.now, true));
}

TEST(EverybodyTold, AfterTheFarewellPeriodNoProcessIsAwaited) {
  ScriptedRun run(1);
  run.start();
  run.finish("w0", {.step = 1});
  run.now += std::chrono::milliseconds(4999);
  EXPECT_FALSE(run.state.everybody_told(run.now, false));
  run.now += std::chrono::milliseconds(1);
  EXPECT_TRUE(run.state.everybody_told(run.now, false));
}

}  // namespace
}  // namespace headroom::coordinator
