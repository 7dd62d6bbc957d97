// Tests how a run ends if a worker is lost or reports a failure and no further
// generation can be formed, as under MPI.
#include <gtest/gtest.h>

#include "coordinator/run/run_state.h"
#include "tests/coordinator/run/scripted_run.h"

namespace headroom::coordinator {
namespace {

configs::RunConfig mpi_config() {
  configs::RunConfig config = ScriptedRun::config();
  config.backend = plan::Backend::kMpi;
  return config;
}

class FailStopRun : public ScriptedRun {
 public:
  explicit FailStopRun(int workers)
      : ScriptedRun(options(workers), mpi_config()) {}
};

TEST(Loss, AfterAKilledWorkerTheSurvivorSavesAndTheReasonIsComplete) {
  FailStopRun run(2);
  run.start();
  run.commit(12);
  run.disconnects("w1");
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  EXPECT_EQ(run.reason(), "1 of 1 survivors have not said how far they are");
  run.exits("w1", 137, "loading\n");
  EXPECT_EQ(run.orders(), "");
  EXPECT_TRUE(run.state.peer_lost()) << "who waits for it is freed";
  run.complain(0, 12);
  EXPECT_EQ(run.orders(), "w0:save");
  EXPECT_EQ(run.finish("w0", {.exit_code = 5, .reason = "saved", .step = 12}),
            std::nullopt);
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.exit_code(), 5);
  EXPECT_EQ(run.reason(),
            "rank 1 (worker w1) on h was killed by signal 9 (SIGKILL); its "
            "last words: loading; the state after 12 steps is saved, continue "
            "with: headroom train --resume /runs/exp");
  EXPECT_EQ(run.orders(), "w0:exit");
  EXPECT_EQ(run.events(), "loss_of_process run_over");
}

// Workers close a stream whose other end does not answer for 12 s.
TEST(Loss, AStreamThatBrokeDuringAPauseOfTheCoordinatorIsNoLoss) {
  ScriptedRun run(2);
  run.start();
  run.pass(500);
  run.now += std::chrono::seconds(12);
  // A call arrives before the coordinator's own tick.
  run.state.note_pause(run.now);
  run.disconnects("w0");
  run.disconnects("w1");
  run.state.tick(run.now);
  EXPECT_TRUE(run.state.is_readopting(run.now));
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_EQ(run.events(), "coordinator_pause");
  // w1 does not return: its missing heartbeats count after the pause.
  run.pass(4900, {1});
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  run.pass(2200, {1});
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  EXPECT_EQ(run.events(), "loss_of_process");
  EXPECT_FALSE(run.state.is_readopting(run.now));
}

TEST(Loss, AWorkerThatEndsDuringThePauseIsLostByItsAgentsReport) {
  ScriptedRun run(2);
  run.start();
  run.now += std::chrono::seconds(12);
  run.state.note_pause(run.now);
  run.disconnects("w1");
  run.exits("w1");
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
}

// The member joins and sends heartbeats, but never comes to the rendezvous.
TEST(Loss, AMemberThatNeverReachesTheRendezvousIsNamedAfterSeconds) {
  ScriptedRun run(2);
  run.start();
  run.state.note_arrival("w0");
  run.pass(14'900);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  run.pass(200);
  EXPECT_EQ(run.phase(), RunPhase::kRegrouping);
  const auto events = run.state.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].warning);
  EXPECT_EQ(events[0].reason,
            "worker w1 on h did not come to the rendezvous of generation 1 "
            "within 15 s");
}

// If no member has come to the rendezvous, none is considered missing, because
// this generation may meet in another way.
TEST(Loss, WithNoMemberAtTheRendezvousNoneIsMissing) {
  ScriptedRun run(2);
  run.start();
  run.pass(30'000);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
}

TEST(Loss, AFailureReportMayArriveBeforeTheLossIsDetected) {
  FailStopRun run(3);
  run.start();
  run.complain(0, 7);
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  EXPECT_EQ(run.orders(), "");
  run.exits("w1", 139, "");
  EXPECT_EQ(run.orders(), "");
  run.complain(2, 8);
  EXPECT_EQ(run.orders(), "w2:save");
  run.finish("w2", {.exit_code = 5, .step = 8});
  EXPECT_EQ(run.orders(), "w0:exit w2:exit");
  EXPECT_EQ(run.reason(),
            "rank 1 (worker w1) on h was killed by signal 11 (SIGSEGV); the "
            "state after 8 steps is saved, continue with: headroom train "
            "--resume /runs/exp");
}

TEST(Loss, AMemberThatLeavesAfterReportingAPeerIsNotBlamed) {
  FailStopRun run(3);
  run.start();
  run.complain(0, 7);
  run.exits("w0", 5, "peer is gone");
  run.exits("w1");
  run.complain(2, 7);
  EXPECT_EQ(run.orders(), "w2:save");
  run.finish("w2", {.exit_code = 5, .step = 7});
  EXPECT_EQ(run.reason().substr(0, 18), "rank 1 (worker w1)");
}

TEST(Loss, ASilenceOfTwoSecondsIsALossAndTheAgentMustKillTheWorker) {
  FailStopRun run(2);
  run.start();
  run.commit(3);
  run.pass(2000, {1});
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  run.pass(100, {1});
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  EXPECT_EQ(run.to_be_killed(), std::vector<std::string>{"w1"});
  run.complain(0, 3);
  run.exits("w1");
  EXPECT_TRUE(run.to_be_killed().empty());
  EXPECT_FALSE(run.state.worker_heartbeat(run.now, "w1", std::nullopt));
  run.finish("w0", {.exit_code = 5, .step = 3});
  EXPECT_EQ(run.reason(),
            "rank 1 (worker w1) on h was silent for 2000 ms; the state after "
            "3 steps is saved, continue with: headroom train --resume "
            "/runs/exp");
}

TEST(Loss, APauseOfTheCoordinatorLosesNoMember) {
  FailStopRun run(2);
  run.start();
  run.now += std::chrono::seconds(60);
  run.state.tick(run.now);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  run.pass(5000);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  run.pass(2100, {0});
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
}

// Each tick of the coordinator is 0.9 s late, and it reads no heartbeat in
// time.
TEST(Loss, ACoordinatorThatWakesLateLosesNoMember) {
  FailStopRun run(2);
  run.start();
  for (int i = 0; i < 4; ++i) {
    run.now += std::chrono::milliseconds(900);
    run.state.tick(run.now);
  }
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  run.pass(3500, {0});
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
}

// The machine may be slow or gone; in both cases none of its processes sends
// messages.
TEST(Loss, ANodeThatSendsNothingIsLostAfterFiveSeconds) {
  FailStopRun run(2);
  run.start();
  run.pass(5000, {0, 1}, false);
  EXPECT_EQ(run.events(), "");
  run.pass(100, {0, 1}, false);
  EXPECT_EQ(run.events(),
            "agent_silent loss_of_process loss_of_process run_over");
}

TEST(Loss, AnAgentWhoseConnectionHasEndedIsSilentAfterTwoSeconds) {
  ScriptedRun run(2);
  run.register_node();
  run.state.note_hangup("n");
  run.pass(2000, {0, 1}, false);
  EXPECT_EQ(run.events(), "");
  run.pass(100, {0, 1}, false);
  EXPECT_EQ(run.events(), "agent_silent loss_of_process loss_of_process");
}

TEST(Loss, StallsOfTwoSecondsLoseNoMember) {
  ScriptedRun run(2);
  run.start();
  for (int stall = 0; stall < 50; ++stall) {
    run.pass(2000, {0, 1}, false);
    // Each worker connects again at the time of its own next attempt.
    run.pass(700, {0, 1});
    run.pass(1200, {1});
    run.pass(600);
  }
  EXPECT_EQ(run.events(), "");
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
}

TEST(Loss, ASilentAgentAloneIsAWarning) {
  FailStopRun run(2);
  run.start();
  run.pass(10000, {}, false);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_EQ(run.events(), "agent_silent");
}

TEST(BeforeTheFirstGeneration, ALostWorkerIsReplacedAndItsSuccessorAwaited) {
  ScriptedRun run(3);
  run.register_node();
  run.join(0);
  run.join(1);
  run.disconnects("w1");
  EXPECT_EQ(run.phase(), RunPhase::kWaiting);
  EXPECT_TRUE(run.exits("w1").restart);
  run.join(2);
  EXPECT_EQ(run.phase(), RunPhase::kWaiting);
  EXPECT_EQ(run.events(), "join join loss_of_process restart join");
  EXPECT_EQ(run.succeed(1), std::nullopt);
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_EQ(run.generation().number, 1u);
  EXPECT_EQ(run.orders(), "w0:run w1.1:run w2:run");
}

TEST(BeforeTheFirstGeneration, ASilentWorkerIsKilledAndReplaced) {
  ScriptedRun run(2);
  run.register_node();
  run.join(0);
  run.pass(2100, {0});
  EXPECT_EQ(run.phase(), RunPhase::kWaiting);
  EXPECT_EQ(run.to_be_killed(), std::vector<std::string>{"w0"});
  EXPECT_TRUE(run.exits("w0").restart);
}

TEST(BeforeTheFirstGeneration, TheFifthEndOfASlotEndsTheRun) {
  ScriptedRun run(2);
  run.register_node();
  run.join(0);
  run.orders();
  std::string name = "w1";
  for (int end = 1; end < 5; ++end) {
    ASSERT_TRUE(run.exits(name, 139, "").restart) << end;
    run.register_successor(1);
    name = "w1." + std::to_string(end);
  }
  EXPECT_FALSE(run.exits(name, 139, "").restart);
  EXPECT_EQ(run.exit_code(), 5);
  EXPECT_EQ(run.reason(),
            "worker w1.4 on h was killed by signal 11 (SIGSEGV), for the fifth "
            "time without a step between; no step had been committed, start "
            "the run again");
  EXPECT_EQ(run.orders(), "w0:exit");
}

TEST(BeforeTheFirstGeneration, AWorkerThatCannotBeReplacedEndsTheRun) {
  for (const int code : {2, 3, 4, 127}) {
    ScriptedRun run(2);
    run.register_node();
    run.join(0);
    EXPECT_FALSE(run.exits("w1", code, "").restart);
    EXPECT_EQ(run.phase(), RunPhase::kFailed);
    EXPECT_EQ(run.exit_code(), code == 127 ? 5 : code);
  }
}

TEST(BeforeTheFirstGeneration, UnderMpiASilentAgentEndsTheRun) {
  FailStopRun run(2);
  run.register_node();
  run.join(0);
  run.orders();
  run.pass(5100, {}, false);
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.exit_code(), 5);
  EXPECT_EQ(run.reason(),
            "worker w1 on h has not joined, and its agent is silent; no step "
            "had been committed, start the run again");
  EXPECT_EQ(run.orders(), "w0:exit");
}

// After the refusal, the order to kill node n's lost worker still exists.
TEST(BeforeTheFirstGeneration, ARefusedAgentTakesNoSlot) {
  ScriptedRun run(2);
  run.register_node();
  run.join(0);
  run.disconnects("w0");
  run.pass(5100, {0}, false);
  const Node large{.node_id = "m",
                   .hostname = "h",
                   .launcher_rank = 0,
                   .worker_ids = {"m0", "m1", "m2"},
                   .last_seen = {}};
  EXPECT_NE(run.state.register_node(run.now, large), std::nullopt);
  const NodeAnswer answer = run.state.node_heartbeat(run.now, "n");
  EXPECT_TRUE(answer.known);
  EXPECT_EQ(answer.lost_worker_ids, std::vector<std::string>{"w0"});
}

TEST(BeforeTheFirstGeneration, AnAgentThatFellSilentMakesRoomForAnother) {
  ScriptedRun run(2);
  run.register_node();
  run.join(0);
  const Node other{.node_id = "m",
                   .hostname = "h",
                   .launcher_rank = 0,
                   .worker_ids = {"m0", "m1"},
                   .last_seen = {}};
  EXPECT_NE(run.state.register_node(run.now, other), std::nullopt);
  EXPECT_FALSE(run.state.membership().may_have_room_later(other));
  run.disconnects("w0");
  EXPECT_TRUE(run.state.membership().may_have_room_later(other));
  run.pass(5100, {0}, false);
  EXPECT_EQ(run.state.register_node(run.now, other), std::nullopt);
  run.state.join(run.now, "m0", "m");
  run.state.join(run.now, "m1", "m");
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_FALSE(run.state.node_heartbeat(run.now, "n").known);
}

TEST(Loss, AnAgentThatDiesWithItsWorkersIsNotWaitedFor) {
  FailStopRun run(1);
  run.start();
  run.commit(4);
  run.disconnects("w0");
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  run.pass(2000, {}, false);
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.reason(),
            "rank 0 (worker w0) on h closed its connection; the state after 4 "
            "steps is not saved");
}

TEST(Loss, AWorkerThatLeavesAfterTheEndIsNotKilled) {
  FailStopRun run(2);
  run.start();
  run.finish("w0", {.reason = "done", .result_json = "{}", .step = 4});
  ASSERT_EQ(run.phase(), RunPhase::kFinished);
  run.disconnects("w1");
  EXPECT_TRUE(run.to_be_killed().empty());
}

TEST(Loss, SilentSurvivorsAreAwaitedOnlyUntilTheTimeout) {
  FailStopRun run(3);
  run.start();
  run.commit(6);
  run.exits("w2");
  run.complain(1, 6);
  run.pass(129900);
  EXPECT_EQ(run.orders(), "");
  run.pass(100);
  EXPECT_EQ(run.orders(), "w1:save");
}

TEST(Loss, WithNoRankThatCanSaveTheRunEndsAfterTheSameTimeout) {
  FailStopRun run(2);
  run.start();
  run.commit(6);
  run.exits("w1");
  run.pass(129900);
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  run.pass(100);
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.orders(), "w0:exit");
  EXPECT_EQ(run.reason(),
            "rank 1 (worker w1) on h was killed by signal 9 (SIGKILL); the "
            "state after 6 steps is not saved");
}

TEST(Loss, ASaverThatDiesIsReplaced) {
  FailStopRun run(3);
  run.start();
  run.exits("w2");
  run.complain(0, 6);
  run.complain(1, 6);
  EXPECT_EQ(run.orders(), "w0:save");
  run.exits("w0");
  EXPECT_EQ(run.orders(), "w1:save");
  run.finish("w1", {.exit_code = 5, .step = 6});
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.reason().substr(0, 18), "rank 2 (worker w2)");
}

TEST(Loss, ASaverThatFailsOrTakesTooLongIsReplaced) {
  FailStopRun run(3);
  run.start();
  run.exits("w2");
  run.complain(0, 6);
  run.complain(1, 6);
  EXPECT_EQ(run.orders(), "w0:save");
  run.fails("w0", {.exit_code = 5,
                   .message = "[checkpoint] disk full",
                   .committed_steps = 6});
  EXPECT_EQ(run.orders(), "w1:save");
  run.pass(119900);
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  run.pass(100);
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.orders(), "w0:exit w1:exit");
  EXPECT_EQ(run.reason(),
            "rank 2 (worker w2) on h was killed by signal 9 (SIGKILL); the "
            "state after 6 steps is not saved; start the run again if its "
            "checkpoints/ is empty");
}

TEST(Loss, AllMembersReportAFailedCollectiveAndNoneIsLost) {
  FailStopRun run(2);
  run.start();
  run.complain(0, 9);
  run.complain(1, 10);
  EXPECT_EQ(run.orders(), "w1:save");
  run.finish("w1", {.exit_code = 5, .step = 10});
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  run.pass(2000);
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.reason(),
            "the workers lost each other though none has ended: "
            "[communication] peer is gone; the state after 10 steps is saved, "
            "continue with: headroom train --resume /runs/exp");
}

TEST(Loss, BeforeTheFirstStepNothingIsSaved) {
  FailStopRun run(2);
  run.start();
  run.exits("w1", 1, "boom");
  run.complain(0, 0);
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.exit_code(), 5);
  EXPECT_EQ(run.reason(),
            "rank 1 (worker w1) on h ended with exit code 1; its last words: "
            "boom; no step had been committed, start the run again");
  EXPECT_EQ(run.orders(), "w0:exit");
}

TEST(Failure, OfTheRequestOrTheDataEndsTheRunWithItsCodeAndText) {
  for (const int code : {2, 3, 4}) {
    FailStopRun run(2);
    run.start();
    run.fails("w1", {code, "[data] no labels: add some"});
    run.fails("w0", {2, "[late] second"});
    EXPECT_EQ(run.phase(), RunPhase::kFailed);
    EXPECT_EQ(run.exit_code(), code);
    EXPECT_EQ(run.reason(), "[data] no labels: add some");
    EXPECT_EQ(run.orders(), "w0:exit w1:exit");
    EXPECT_EQ(run.events(), "fault run_over");
  }
}

TEST(Failure, TheCauseOutranksAnEarlierReportOfAPeer) {
  FailStopRun run(2);
  run.start();
  run.complain(0, 0);
  run.fails("w1", {4, "[data] nothing left"});
  EXPECT_EQ(run.exit_code(), 4);
  EXPECT_EQ(run.reason(), "[data] nothing left");
}

TEST(Failure, OfAResourceStopsAtTheCommittedStep) {
  FailStopRun run(2);
  run.start();
  run.fails("w0", {.exit_code = 5,
                   .message = "[memory] out of memory",
                   .committed_steps = 3});
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  run.complain(1, 3);
  EXPECT_EQ(run.orders(), "w1:save");
  run.finish("w1", {.exit_code = 5, .step = 3});
  EXPECT_EQ(run.exit_code(), 5);
  EXPECT_EQ(run.reason(),
            "rank 0 (worker w0) on h stopped: [memory] out of memory; the "
            "state after 3 steps is saved, continue with: headroom train "
            "--resume /runs/exp");
}

TEST(Failure, AWorkerThatCannotStartEndsTheRunAtOnce) {
  FailStopRun run(2);
  run.register_node();
  run.join(0);
  run.orders();
  run.exits("w1", 127, "no such file");
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.exit_code(), 5);
  EXPECT_EQ(run.reason(),
            "worker w1 on h ended with exit code 127; its last words: no such "
            "file; no step had been committed, start the run again");
  EXPECT_EQ(run.orders(), "w0:exit");
}

TEST(Failure, AWorkersExitCodeTellsAFaultOfTheRequest) {
  FailStopRun run(2);
  run.register_node();
  run.exits("w1", 2, "[worker] unknown flag");
  EXPECT_EQ(run.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.exit_code(), 2);
}

TEST(Failure, FromNoMemberIsIgnored) {
  FailStopRun run(1);
  run.start();
  run.fails("z", {2, "x"});
  run.exits("z", 2, "x");
  run.disconnects("z");
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
}

TEST(Failure, RankZeroMayFinishThoughAPeerLeftEarly) {
  FailStopRun run(2);
  run.start();
  run.exits("w1", 0, "");
  EXPECT_EQ(run.phase(), RunPhase::kStopping);
  run.finish("w0", {.reason = "done", .result_json = "{}", .step = 20});
  EXPECT_EQ(run.phase(), RunPhase::kFinished);
  EXPECT_EQ(run.exit_code(), 0);
}

}  // namespace
}  // namespace headroom::coordinator
