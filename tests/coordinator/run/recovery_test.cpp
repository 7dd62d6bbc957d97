// Tests when, where and with which members a run continues after it lost a
// worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "configs/layers/model_table.h"
#include "coordinator/run/run_state.h"
#include "parallel/base/device_list.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/plan_memory.h"
#include "tests/coordinator/run/scripted_run.h"

namespace headroom::coordinator {
namespace {

using ::testing::HasSubstr;

Node other_node(int workers, const std::string& name = "m") {
  Node node;
  node.node_id = name;
  node.hostname = name;
  for (int k = 0; k < workers; ++k) {
    node.worker_ids.push_back(name + std::to_string(k));
  }
  return node;
}

Leaving asked(int64_t steps) {
  Leaving leaving;
  leaving.cause = LeavingCause::kAsked;
  leaving.from.committed_steps = steps;
  return leaving;
}

TEST(Recovery, AKilledWorkerIsStartedAgainAndTheLayoutStays) {
  ScriptedRun run(2);
  run.start();
  run.commit(12);
  run.disconnects("w1");
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  const RestartDecision decision = run.exits("w1", 137, "loading\n");
  EXPECT_TRUE(decision.restart);
  EXPECT_EQ(decision.delay.count(), 0);
  run.complain(0, 12);
  EXPECT_EQ(run.orders(), "");
  EXPECT_EQ(run.reason(), "1 of 2 workers are there, 1 is coming");
  EXPECT_EQ(run.register_successor(1), std::nullopt);
  EXPECT_EQ(run.orders(), "");
  run.join(1);
  EXPECT_EQ(run.orders(), "w0:run w1.1:run");
  const Generation& generation = run.generation();
  EXPECT_EQ(generation.number, 2u);
  EXPECT_EQ(generation.find("w1.1")->rank, 1);
  EXPECT_EQ(generation.begin, (ResumePoint{12, ""}));
  EXPECT_EQ(generation.reason,
            "rank 1 on h was killed by signal 9 (SIGKILL); 2 of 2 workers are "
            "there");
  EXPECT_EQ(run.events(), "loss_of_process restart join generation plan");
}

wire::WorkerFailure out_of_memory(int64_t steps, bool can_go_on = true) {
  return {.exit_code = 5,
          .message = "[memory] out of memory",
          .kind = wire::FailureKind::kOutOfMemory,
          .is_leaner = true,
          .can_go_on = can_go_on,
          .committed_steps = steps};
}

TEST(Recovery, ARankOutOfMemoryAndItsPeersGoOnInTheirPlaces) {
  ScriptedRun run(2);
  run.start();
  run.commit(12);
  run.fails("w1", out_of_memory(12));
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  EXPECT_TRUE(run.state.peer_lost()) << "its peers are freed";
  EXPECT_EQ(run.orders(), "");
  run.complain(0, 12);
  EXPECT_EQ(run.orders(), "w0:run w1:run");
  const Generation& generation = run.generation();
  EXPECT_EQ(generation.number, 2u);
  EXPECT_TRUE(generation.keeps_state);
  EXPECT_EQ(generation.begin, (ResumePoint{12, ""}));
  EXPECT_EQ(generation.reason,
            "rank 1 ran out of memory; 2 of 2 workers are there");
  EXPECT_EQ(run.events(), "generation plan") << "no process is lost";
}

TEST(Recovery, NoRankKeepsTheStateWhereOneCannot) {
  // Three cases: one rank cannot keep its state; one rank is a step behind; one
  // rank is lost before the next generation begins.
  for (int why = 0; why < 3; ++why) {
    SCOPED_TRACE(why);
    ScriptedRun run(2);
    run.start();
    run.commit(12);
    run.fails("w1", out_of_memory(12, why != 0));
    if (why == 2) {
      run.exits("w1");
      run.succeed(1);
    }
    run.complain(0, why == 1 ? 11 : 12);
    EXPECT_EQ(run.generation().number, 2u);
    EXPECT_FALSE(run.generation().keeps_state);
    EXPECT_EQ(run.generation().begin.committed_steps, 12);
  }
}

// The run waits for a worker that needs less memory after each failure, however
// often it fails. It does not wait for one that runs out of memory although it
// already keeps as little as possible.
TEST(Recovery, MemoryThatRunsOutForGoodEndsTheRun) {
  for (const bool is_leaner : {true, false}) {
    SCOPED_TRACE(is_leaner);
    ScriptedRun run(2);
    run.start();
    run.commit(3);
    for (int i = 0; i < 12 && run.phase() == RunPhase::kRunning; ++i) {
      wire::WorkerFailure failure = out_of_memory(3);
      failure.is_leaner = is_leaner;
      run.fails("w1", failure);
      run.complain(0, 3);
      if (run.phase() == RunPhase::kRegrouping) run.pass(5000);
    }
    EXPECT_EQ(run.phase(),
              is_leaner ? RunPhase::kRunning : RunPhase::kStopping);
    EXPECT_EQ(run.generation().number, is_leaner ? 13u : 6u);
  }
}

TEST(Recovery, GenerationsWithoutAStepEndTheRunWithTheirReasons) {
  ScriptedRun run(2);
  run.start();
  run.commit(3);
  const auto fail = [&](int64_t steps) {
    run.fails("w0", {.exit_code = 5,
                     .message = "[nccl] unhandled system error",
                     .kind = wire::FailureKind::kConnection,
                     .can_go_on = true,
                     .committed_steps = steps});
    run.complain(1, steps);
  };
  fail(3);  // three steps were committed before
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(run.phase(), RunPhase::kRunning) << i;
    fail(3);
    if (i == 0) continue;  // the next generations begin after 1, 2 and 4 s
    run.pass(900 << (i - 1));
    EXPECT_EQ(run.phase(), RunPhase::kRegrouping) << i;
    run.pass(200 << (i - 1));
  }
  EXPECT_EQ(run.generation().number, 6u);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  fail(3);
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  EXPECT_EQ(run.generation().number, 6u);
  run.pass(2000);
  EXPECT_NE(run.orders().find("w0:save"), std::string::npos);
  wire::FinishedRun saved;
  saved.step = 3;
  run.finish("w0", saved);
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.exit_code(), 5);
  const std::string& reason = run.reason();
  EXPECT_TRUE(reason.starts_with(
      "5 generations in a row ended without a committed step: generation 2: "
      "rank 0 failed: [nccl] unhandled system error; 2 of 2 workers are there; "
      "generation 3: "))
      << reason;
  EXPECT_NE(reason.find("the state after 3 steps is saved"), std::string::npos)
      << reason;
}

TEST(Recovery, StepsAndALadderThatMovesAreProgress) {
  ScriptedRun run(2);
  run.start();
  for (int i = 0; i < 20; ++i) {
    run.fails("w1", out_of_memory(0));
    run.complain(0, 0);
    ASSERT_EQ(run.phase(), RunPhase::kRunning) << i;
  }
  for (int i = 1; i < 20; ++i) {
    run.complain(0, i);
    run.complain(1, i);
    ASSERT_EQ(run.phase(), RunPhase::kRunning) << i;
  }
}

TEST(Recovery, ARepeatedReportOfAnExitCountsOnce) {
  ScriptedRun run(2);
  run.start();
  for (int i = 0; i < 9; ++i) {
    EXPECT_TRUE(run.exits("w1").restart);
  }
}

TEST(Recovery, TheNewestCommittedStepIsTheTruth) {
  ScriptedRun run(3);
  run.start();
  run.complain(0, 7);
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  run.exits("w1", 139, "");
  run.complain(2, 8);
  run.succeed(1);
  EXPECT_EQ(run.orders(), "w0:run w1.1:run w2:run");
  EXPECT_EQ(run.generation().begin.committed_steps, 8);
}

TEST(Recovery, WorkersThatWillNotJoinAreNotWaitedFor) {
  ScriptedRun run(3);
  run.start();
  EXPECT_FALSE(run.exits("w2", 127, "").restart);
  run.complain(0, 5);
  EXPECT_EQ(run.orders(), "");
  run.complain(1, 5);
  EXPECT_EQ(run.orders(), "w0:run w1:run");
  EXPECT_EQ(run.generation().plan.layout.data_parallel_size, 2);
}

TEST(Recovery, AfterFiveSecondsTheRunGoesOnWithFewerAndLaterWithAll) {
  ScriptedRun run(2);
  run.start();
  run.exits("w1");
  run.complain(0, 5);
  run.pass(4900, {1});
  EXPECT_EQ(run.orders(), "");
  run.pass(100, {1});
  EXPECT_EQ(run.orders(), "w0:run");
  EXPECT_EQ(run.generation().members.size(), 1u);
  EXPECT_FALSE(run.state.leave_requested());
  // The expected worker registers after all, so the run returns to the
  // requested layout at the next step.
  run.succeed(1);
  EXPECT_TRUE(run.state.leave_requested());
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_EQ(run.leaves("w0", asked(9)), std::nullopt);
  EXPECT_EQ(run.orders(), "w0:run w1.1:run");
  EXPECT_EQ(run.generation().begin.committed_steps, 9);
  EXPECT_FALSE(run.state.leave_requested());
}

TEST(Recovery, FewerThanMinProcessesWaitAndThenSave) {
  configs::RunConfig config = ScriptedRun::config();
  config.min_processes = 2;
  ScriptedRun run(ScriptedRun::options(2), config);
  run.start();
  run.exits("w1", 127, "");
  run.complain(0, 5);
  run.pass(599900, {1});
  EXPECT_EQ(run.orders(), "");
  EXPECT_EQ(run.reason(),
            "1 of 2 workers are there, --min-processes 2 are needed");
  run.pass(200, {1});
  EXPECT_EQ(run.orders(), "w0:save");
}

// A run of yolov5n on the CPU, whose model the coordinator can read.
ScriptedRun run_of_a_model(int workers) {
  configs::RunConfig config = ScriptedRun::config();
  config.cfg = "yolov5n";
  config.device = kCpuDevice;
  config.threads = 2;
  RunOptions options = ScriptedRun::options(workers);
  options.layers = layers::layer_costs(layers::load_model_table(config.cfg));
  return ScriptedRun(options, config);
}

TEST(Recovery, AfterAKillForTheHostsMemoryTheNextGenerationTakesLess) {
  ScriptedRun run = run_of_a_model(1);
  run.start();
  run.commit(4);
  const auto bytes_of_plan = [&] {
    return planner::fullest_rank_bytes(run.generation().plan);
  };
  const auto limits = [&] {
    return configs::parse_run_config(run.state.settled_config_yaml(), "test");
  };
  int64_t tensors = bytes_of_plan();
  EXPECT_EQ(limits().host_memory_limit, 0);
  int64_t loaders = int64_t{1} << 40;
  std::string victim = "w0";
  // Three kills: more than a worker without progress is normally restarted.
  for (int kills = 1; kills <= 3; ++kills) {
    const RestartDecision decision =
        run.exits(victim, 137, "", "2 GiB by the container's limit (cgroup)");
    EXPECT_TRUE(decision.restart);
    EXPECT_EQ(decision.delay.count(), 0);
    EXPECT_EQ(decision.reason, "started again, with less of the host's memory");
    run.succeed(0);
    ASSERT_EQ(run.phase(), RunPhase::kRunning);
    EXPECT_EQ(run.generation().reason,
              "rank 0 on h ran out of the host's memory and was killed by the "
              "kernel (memory: 2 GiB by the container's limit (cgroup)); 1 of "
              "1 workers are there");
    EXPECT_LT(bytes_of_plan(), tensors);
    EXPECT_LE(limits().host_memory_limit, loaders);
    EXPECT_GE(limits().memory_limit, bytes_of_plan());
    tensors = bytes_of_plan();
    loaders = limits().host_memory_limit;
    victim = "w0." + std::to_string(kills);
  }
}

TEST(Recovery, KillsForTheHostsMemoryEndTheRunWhenNothingIsLeftToSave) {
  ScriptedRun run = run_of_a_model(1);
  run.start();
  std::string victim = "w0";
  int kills = 0;
  while (run.exits(victim, 137, "", "90 MiB of this machine").restart) {
    ASSERT_LT(++kills, 40);
    run.succeed(0);
    victim = "w0." + std::to_string(kills);
  }
  EXPECT_GT(kills, 4) << "each smaller generation was tried";
  EXPECT_EQ(run.exit_code(), 5);
  EXPECT_THAT(run.reason(),
              HasSubstr("ran out of the host's memory and was killed by the "
                        "kernel (memory: 90 MiB of this machine), for the "
                        "fifth time without a step between"));
}

TEST(Recovery, AKillByAnotherHandChangesNothing) {
  ScriptedRun run = run_of_a_model(1);
  run.start();
  const plan::Plan before = run.generation().plan;
  EXPECT_TRUE(run.exits("w0", 137).restart);
  run.succeed(0);
  EXPECT_EQ(run.generation().plan, before);
}

TEST(Recovery, ACrashLoopEndsTheRunWithTheWorkersLastOutput) {
  ScriptedRun run(2);
  run.start();
  run.commit(4);
  std::string victim = "w1";
  for (int end = 1; end < 5; ++end) {
    const RestartDecision decision = run.exits(victim, 139, "poisoned\n");
    EXPECT_TRUE(decision.restart);
    EXPECT_EQ(decision.delay.count(), end == 1 ? 0 : 250 << (end - 2));
    run.complain(0, 4);
    run.succeed(1);
    EXPECT_EQ(run.phase(), RunPhase::kRunning);
    victim = "w1." + std::to_string(end);
  }
  run.orders();
  EXPECT_FALSE(run.exits(victim, 139, "poisoned\n").restart);
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  run.complain(0, 4);
  EXPECT_EQ(run.orders(), "w0:save");
  run.finish("w0", {.exit_code = 5, .step = 4});
  EXPECT_EQ(run.exit_code(), 5);
  EXPECT_EQ(run.reason(),
            "rank 1 (worker w1.4) on h was killed by signal 11 (SIGSEGV), for "
            "the fifth time without a step between; its last words: poisoned; "
            "the state after 4 steps is saved, continue with: headroom train "
            "--resume /runs/exp");
}

TEST(Recovery, AStepBetweenMakesItNoCrashLoop) {
  ScriptedRun run(2);
  run.start();
  std::string victim = "w1";
  for (int end = 1; end <= 20; ++end) {
    run.commit(end);
    const RestartDecision decision = run.exits(victim);
    ASSERT_TRUE(decision.restart);
    EXPECT_EQ(decision.delay.count(), 0);
    run.complain(0, end);
    run.succeed(1);
    victim = "w1." + std::to_string(end);
  }
  EXPECT_EQ(run.generation().number, 21u);
}

TEST(Recovery, AWorkersOwnFailureIsNoReasonToTryAgain) {
  ScriptedRun run(2);
  run.start();
  run.fails("w0", {.exit_code = 5,
                   .message = "[memory] out of memory",
                   .committed_steps = 3});
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  EXPECT_FALSE(run.exits("w0", 5, "").restart);
  run.complain(1, 3);
  EXPECT_EQ(run.orders(), "w1:save");
}

TEST(Recovery, ASilenceOfTwoSecondsIsALossAndTheAgentMustKillTheWorker) {
  ScriptedRun run(2);
  run.start();
  run.pass(2100, {1});
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  EXPECT_EQ(run.to_be_killed(), std::vector<std::string>{"w1"});
  run.complain(0, 3);
  EXPECT_EQ(run.register_successor(1), std::nullopt)
      << "given up is as good as gone";
}

TEST(Recovery, AStuckRankThatStillSendsHeartbeatsIsNamedAndKilled) {
  ScriptedRun run(2);
  run.start();
  wire::RunProgress progress;
  progress.step = 7;
  progress.quiet_ms = 10'000;
  run.state.worker_heartbeat(run.now, "w1", progress);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  progress.quiet_ms = 10'300;
  run.state.worker_heartbeat(run.now, "w1", progress);
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  EXPECT_EQ(run.to_be_killed(), std::vector<std::string>{"w1"});
  run.complain(0, 7);
  EXPECT_TRUE(run.exits("w1").restart);
  run.succeed(1);
  EXPECT_THAT(run.generation().reason,
              HasSubstr("rank 1 on h was stuck in step 7"));
}

// On an overloaded machine a rank may make no progress for a long time.
TEST(Recovery, ARankThatGetsNoCoreIsReportedOnceAndGoesOn) {
  ScriptedRun run(2);
  run.start();
  wire::RunProgress progress;
  progress.quiet_ms = 10'123;
  progress.core_wait_ms = 8'200;
  run.state.worker_heartbeat(run.now, "w1", progress);
  progress.quiet_ms = 10'373;
  progress.core_wait_ms = 8'450;
  run.state.worker_heartbeat(run.now, "w1", progress);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_TRUE(run.to_be_killed().empty());
  const auto events = run.state.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.front().event, EventKind::kOverload);
  EXPECT_EQ(events.front().rank, 1);
  EXPECT_TRUE(events.front().warning);
  EXPECT_THAT(events.front().reason,
              testing::StartsWith("rank 1 on h got no processor core for 8.2 "
                                  "of 10.1 s: this machine is overloaded"));
  progress.quiet_ms = 30'000;  // 21.5 s with a core
  run.state.worker_heartbeat(run.now, "w1", progress);
  EXPECT_EQ(run.to_be_killed(), std::vector<std::string>{"w1"});
}

TEST(Recovery, AStuckRankIsAlsoKilledWhileAnotherIsLost) {
  ScriptedRun run(3);
  run.start();
  run.exits("w0");
  run.complain(2, 7);
  wire::RunProgress progress;
  progress.quiet_ms = 10'300;
  run.state.worker_heartbeat(run.now, "w2", progress);  // w2 has already left
  EXPECT_TRUE(run.to_be_killed().empty());
  run.state.worker_heartbeat(run.now, "w1", progress);
  EXPECT_EQ(run.to_be_killed(), std::vector<std::string>{"w1"});
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  run.exits("w1");
  run.succeed(0);
  run.succeed(1);
  EXPECT_EQ(run.generation().number, 2u);
  EXPECT_EQ(run.generation().begin.committed_steps, 7);
}

// While one rank is late, the time limits of the ranks that wait for it do not
// run.
TEST(Recovery, ARankThatWaitsForNoPeerIsReportedLateToTheOthers) {
  ScriptedRun run(2);
  run.start();
  run.state.note_waiting("w0", true);
  run.state.note_waiting("w1", false);
  EXPECT_TRUE(run.state.a_member_works());
  run.state.note_waiting("w1", true);
  EXPECT_FALSE(run.state.a_member_works()) << "all wait: the network failed";
  run.state.note_waiting("stranger", false);
  EXPECT_FALSE(run.state.a_member_works()) << "it takes no part";
}

// Without this report, a rank that waits for a message of the lost worker would
// wait until its own time limit.
TEST(Recovery, HeartbeatRepliesReportALossUntilTheNextGeneration) {
  ScriptedRun run(2);
  run.start();
  EXPECT_FALSE(run.state.peer_lost());
  run.exits("w1");
  EXPECT_TRUE(run.state.peer_lost());
  run.complain(0, 7);
  run.succeed(1);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_FALSE(run.state.peer_lost());
}

TEST(Recovery, AllMembersReportAFailedCollectiveAndNoneIsLost) {
  ScriptedRun run(2);
  run.start();
  run.complain(0, 9);
  EXPECT_EQ(run.orders(), "");
  run.complain(1, 10);
  EXPECT_EQ(run.orders(), "w0:run w1:run");
  EXPECT_EQ(run.generation().reason,
            "the workers lost each other; 2 of 2 workers are there");
}

TEST(Recovery, AnAgentThatDiesTakesItsWorkersAndTheOthersGoOn) {
  ScriptedRun run(ScriptedRun::options(2), ScriptedRun::config());
  Node one = other_node(1, "m"), two = other_node(1, "k");
  run.state.register_node(run.now, one);
  run.state.register_node(run.now, two);
  run.state.join(run.now, "m0", "m");
  run.state.join(run.now, "k0", "k");
  EXPECT_EQ(run.orders(), "k0:run m0:run");
  run.disconnects("m0");
  run.fails("k0", {.exit_code = 5,
                   .message = "gone",
                   .kind = wire::FailureKind::kLostPeer,
                   .committed_steps = 3});
  run.state.note_hangup("m");
  for (int i = 0; i < 25; ++i) {
    run.now += std::chrono::milliseconds(100);
    run.state.node_heartbeat(run.now, "k");
    run.state.worker_heartbeat(run.now, "k0", std::nullopt);
    run.state.tick(run.now);
  }
  EXPECT_EQ(run.orders(), "k0:run");
  EXPECT_EQ(run.generation().members.size(), 1u);
}

TEST(Recovery, ANewcomerIsAdmittedAtAStepAndADrainedNodeLeavesAtOne) {
  ScriptedRun run(2);
  run.start();
  EXPECT_EQ(run.state.register_node(run.now, other_node(2)), std::nullopt);
  run.state.join(run.now, "m0", "m");
  EXPECT_FALSE(run.state.leave_requested()) << "the other one is on its way";
  run.state.join(run.now, "m1", "m");
  EXPECT_TRUE(run.state.leave_requested());
  run.leaves("w0", asked(5));
  EXPECT_EQ(run.orders(), "");
  run.leaves("w1", asked(5));
  EXPECT_EQ(run.orders(), "w0:run w1:run m0:run m1:run");
  EXPECT_EQ(run.generation().plan.layout.data_parallel_size, 4);

  run.state.drain_node(run.now, "n", "SIGTERM");
  EXPECT_TRUE(run.state.leave_requested());
  for (const char* worker : {"w0", "w1", "m0", "m1"}) {
    run.leaves(worker, asked(8));
  }
  EXPECT_EQ(run.orders(), "m0:run m1:run w0:exit w1:exit");
  run.events();
  run.disconnects("w0");
  EXPECT_FALSE(run.exits("w0", 0, "").restart);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_EQ(run.events(), "");
  // If the last node is drained, the run itself ends.
  run.state.drain_node(run.now, "m", "SIGTERM");
  EXPECT_TRUE(run.state.stop_requested());
}

TEST(Recovery, ARequestToLeaveIsSentOnce) {
  ScriptedRun run(2);
  run.start();
  run.state.register_node(run.now, other_node(1));
  run.state.join(run.now, "m0", "m");
  run.leaves("w0", asked(5));
  run.leaves("w1", asked(5));
  run.state.drain_node(run.now, "m", "SIGTERM");
  for (const char* worker : {"w0", "w1", "m0"}) {
    run.leaves(worker, asked(8));
  }
  EXPECT_EQ(run.orders(), "w0:run w1:run m0:run w0:run w1:run m0:exit");
  run.finish("w0", {.reason = "done", .result_json = "{}", .step = 9});
  EXPECT_EQ(run.orders(), "w0:exit w1:exit");
}

TEST(Recovery, ADrainedNodesWorkerThatWasStillStartingLeavesToo) {
  ScriptedRun run(2);
  run.start();
  run.state.register_node(run.now, other_node(1));
  run.events();
  run.state.drain_node(run.now, "m", "SIGTERM");
  EXPECT_EQ(run.orders(), "");
  run.state.join(run.now, "m0", "m");
  EXPECT_EQ(run.orders(), "m0:exit");
  run.events();
  run.disconnects("m0");
  EXPECT_FALSE(run.exits("m0", 0, "").restart);
  EXPECT_EQ(run.events(), "") << "nobody's loss";
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
}

TEST(Recovery, AnAgentThatIsStartedAgainBringsTheLayoutBack) {
  ScriptedRun run(2);
  run.start();
  run.commit(4);
  run.disconnects("w0");
  run.disconnects("w1");
  run.events();
  EXPECT_EQ(run.state.register_node(run.now, other_node(2)), std::nullopt);
  EXPECT_EQ(run.events(), "agent_joins");
  run.state.join(run.now, "m0", "m");
  EXPECT_EQ(run.orders(), "");
  run.state.join(run.now, "m1", "m");
  EXPECT_EQ(run.orders(), "m0:run m1:run");
  EXPECT_EQ(run.generation().begin, (ResumePoint{4, ""}));
}

TEST(Recovery, ARequestedLayoutTakesNoFurtherWorkers) {
  configs::RunConfig config = ScriptedRun::config();
  config.layout = plan::parse_layout("data=2");
  ScriptedRun run(ScriptedRun::options(2), config);
  run.start();
  run.orders();
  run.state.register_node(run.now, other_node(1));
  run.state.join(run.now, "m0", "m");
  EXPECT_EQ(run.orders(), "");
  EXPECT_FALSE(run.state.leave_requested());
  // The additional worker replaces one that is lost.
  run.exits("w1");
  run.complain(0, 6);
  EXPECT_EQ(run.orders(), "w0:run m0:run");
  EXPECT_NE(run.generation().find("m0"), nullptr);
}

TEST(Recovery, AllAreLostAndTheRunGoesOnWithTheirSuccessors) {
  ScriptedRun run(2);
  run.start();
  run.commit(6);
  run.exits("w0");
  run.exits("w1");
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  run.succeed(0);
  run.succeed(1);
  EXPECT_EQ(run.orders(), "w0.1:run w1.1:run");
  EXPECT_EQ(run.generation().begin, (ResumePoint{6, ""}));
}

TEST(Recovery, ALossWhileTheNextGenerationConnectsIsAnother) {
  ScriptedRun run(3);
  run.start();
  run.exits("w1");
  run.complain(0, 3);
  run.complain(2, 3);
  run.succeed(1);
  run.orders();
  run.exits("w2");
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  run.complain(0, 3);
  run.complain(1, 0);
  run.succeed(2);
  EXPECT_EQ(run.orders(), "w0:run w1.1:run w2.1:run");
  EXPECT_EQ(run.generation().begin.committed_steps, 3);
}

}  // namespace
}  // namespace headroom::coordinator
