// Tests which failures of cards count as one event, which card is excluded, and
// how the run continues.
#include "coordinator/run/card_failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "coordinator/log/run_state_snapshot.h"
#include "tests/coordinator/run/scripted_run.h"

namespace headroom::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kWords = "CUDA error: uncorrectable ECC error";
const TimePoint kNow = TimePoint() + seconds(100);

Card card(int number) {
  return {"GPU-" + std::to_string(number), "NVIDIA H100",
          "0000:1" + std::to_string(number) + ":00.0"};
}

CardFailure failure(int number, int64_t step, const std::string& worker_id) {
  CardFailure one;
  one.fault = {CardFault::Kind::kFailed, card(number), kWords};
  one.worker_id = worker_id;
  one.node_id = "n";
  one.local_slot = number;
  one.hostname = "h";
  one.step = step;
  return one;
}

// --- the decision -----------------------------------------------------------

TEST(CardFailure, TheFirstLosesAWorkerThatIsStartedAgain) {
  const CardDecision decision =
      decide_card_failure(kNow, {}, failure(1, 3, "w1"), {}, 1000);
  EXPECT_TRUE(decision.begins_event);
  EXPECT_TRUE(decision.is_charged);
  EXPECT_FALSE(decision.is_left_out);
  EXPECT_EQ(decision.what_follows,
            "its worker is started again; a second failure of this card "
            "within 1000 steps leaves it out");
}

TEST(CardFailure, TheSecondWithinSoManyStepsLeavesTheCardOut) {
  CardFailures cards;
  cards.note(kNow, failure(1, 3, "w1"), {}, 1000);
  const auto at = [&](int64_t step) {
    return decide_card_failure(kNow, cards.all(), failure(1, step, "w1.1"), {},
                               1000);
  };
  EXPECT_TRUE(at(1003).is_left_out);
  EXPECT_FALSE(at(1004).is_left_out);
  EXPECT_EQ(at(5).what_follows,
            "it failed after 3 and after 5 steps, twice within 1000 steps: it "
            "is left out, and no worker is started on it");
  // The later failure has a smaller step if the run returned to a checkpoint.
  EXPECT_TRUE(at(2).is_left_out);
  // A failure of another card does not count.
  EXPECT_FALSE(
      decide_card_failure(kNow, cards.all(), failure(2, 5, "w2"), {}, 1000)
          .is_left_out);
}

TEST(CardFailure, SoonAfterAnotherLossAFailureIsItsConsequenceAndDoesNotCount) {
  const FirstLoss first{"w0", 0, kNow};
  const auto after = [&](milliseconds pause) {
    return decide_card_failure(kNow + pause, {}, failure(1, 3, "w1"), first,
                               1000);
  };
  EXPECT_FALSE(after(seconds(5)).begins_event);
  EXPECT_FALSE(after(seconds(5)).is_charged);
  EXPECT_FALSE(after(seconds(5)).is_left_out);
  EXPECT_EQ(after(milliseconds(300)).what_follows,
            "0.3 s after rank 0 was lost, and taken for a consequence: its "
            "worker is started again");
  EXPECT_TRUE(after(milliseconds(5001)).begins_event);
  EXPECT_TRUE(after(milliseconds(5001)).is_charged);
}

TEST(CardFailure, ACardThatIsNotListedAnyMoreIsLeftOutAtOnce) {
  CardFailure gone = failure(1, 3, "w1.1");
  gone.fault.kind = CardFault::Kind::kGone;
  const FirstLoss first{"w0", 0, kNow};
  const CardDecision decision =
      decide_card_failure(kNow, {}, gone, first, 1000);
  EXPECT_TRUE(decision.begins_event);
  EXPECT_TRUE(decision.is_left_out);
}

// Not even soon after another loss, whose consequence it cannot be.
TEST(CardFailure, ACardThatComputesWrongIsLeftOutAtOnce) {
  CardFailure wrong = failure(1, 3, "w1.1");
  wrong.fault.kind = CardFault::Kind::kWrong;
  const FirstLoss first{"w0", 0, kNow};
  const CardDecision decision =
      decide_card_failure(kNow, {}, wrong, first, 1000);
  EXPECT_TRUE(decision.begins_event);
  EXPECT_TRUE(decision.is_left_out);
  EXPECT_EQ(decision.what_follows,
            "it computes wrong: it is left out, and no worker is started on "
            "it");
}

TEST(CardFailure, IsCountedOncePerWorkerAndPerCardWhereverItsWorkerRuns) {
  CardFailures cards;
  EXPECT_TRUE(cards.note(kNow, failure(1, 3, "w1"), {}, 10));
  EXPECT_FALSE(cards.note(kNow, failure(1, 3, "w1"), {}, 10));
  EXPECT_EQ(cards.no_successor("n", 1), std::nullopt);
  // The agent was restarted, so the card now belongs to another node.
  CardFailure elsewhere = failure(1, 5, "m1");
  elsewhere.node_id = "m";
  EXPECT_TRUE(cards.note(kNow, elsewhere, {}, 10)->is_left_out);
  EXPECT_EQ(cards.no_successor("m", 1),
            "its card NVIDIA H100 (GPU-1, 0000:11:00.0) is left out");
  EXPECT_EQ(cards.no_successor("n", 1), cards.no_successor("m", 1));
  EXPECT_EQ(cards.no_successor("n", 2), std::nullopt);
  ASSERT_EQ(cards.left_out().size(), 1u);
  EXPECT_EQ(cards.left_out()[0].fault.card, card(1));
  EXPECT_THAT(cards.left_out()[0].reason, HasSubstr(kWords));
  EXPECT_EQ(cards.left_out_text(),
            "; left out: NVIDIA H100 (GPU-1, 0000:11:00.0) on h");
}

TEST(CardFailure, WithoutAUuidASlotIdentifiesItsCard) {
  CardFailures cards;
  CardFailure one = failure(1, 3, "w1");
  one.fault.card = {};
  cards.note(kNow, one, {}, 10);
  CardFailure other = failure(2, 4, "w2");
  other.fault.card = {};
  EXPECT_FALSE(cards.note(kNow, other, {}, 10)->is_left_out);
  one.worker_id = "w1.1";
  EXPECT_TRUE(cards.note(kNow, one, {}, 10)->is_left_out);
}

TEST(CardFailure, FailuresTooOldToCountAreForgotten) {
  CardFailures cards;
  for (int i = 0; i < 100; ++i) {
    cards.note(kNow, failure(1, 100 * i, "w" + std::to_string(i)), {}, 10);
  }
  EXPECT_EQ(cards.all().size(), 1u);
}

// --- the run ----------------------------------------------------------------

wire::WorkerFailure report(int number, int64_t steps,
                           CardFault::Kind kind = CardFault::Kind::kFailed) {
  wire::WorkerFailure worker;
  worker.exit_code = 5;
  worker.committed_steps = steps;
  worker.checkpoint_steps = 2;
  worker.card_fault = CardFault{kind, card(number), kWords};
  return worker;
}

// A run in which the card of each worker has the number of the worker's slot.
class CardRun : public ScriptedRun {
 public:
  using ScriptedRun::ScriptedRun;

  // The card of the worker in slot k fails, and the worker's process ends.
  // Returns true if its agent starts another worker.
  bool lose_card(int k, const std::string& worker_id, int64_t steps) {
    state.committed(steps, std::nullopt);
    state.card_failed(now, worker_id, report(k, steps));
    return state.worker_exited(now, worker_id, 6, "").restart;
  }
  std::string reasons(EventKind kind) {
    std::string text;
    for (const wire::EventRecord& event : state.take_events()) {
      if (event.event == kind) text += event.reason + "\n";
    }
    return text;
  }
};

TEST(CardLoss, CostsItsWorkerAndTheRunGoesOnWithASuccessor) {
  CardRun run(2);
  run.start();
  EXPECT_TRUE(run.lose_card(1, "w1", 3));
  run.complain(0, 3);
  run.succeed(1);
  EXPECT_EQ(run.orders(), "w0:run w1.1:run");
  EXPECT_EQ(run.generation().begin.committed_steps, 3);
  EXPECT_EQ(run.events(),
            "card_failure loss_of_process restart join generation plan");
  EXPECT_EQ(run.generation().reason,
            "rank 1 on h lost its card NVIDIA H100 (GPU-1, 0000:11:00.0): CUDA "
            "error: uncorrectable ECC error; its worker is started again; a "
            "second failure of this card within 1000 steps leaves it out; 2 of "
            "2 workers are there");
}

TEST(CardLoss, ARepeatedReportCountsOnce) {
  CardRun run(2);
  run.start();
  run.state.card_failed(run.now, "w1", report(1, 3));
  run.state.card_failed(run.now, "w1", report(1, 3));
  EXPECT_EQ(run.events(), "card_failure loss_of_process");
  EXPECT_TRUE(run.state.cards().left_out().empty());
}

TEST(CardLoss, ASecondFailureExcludesTheCardAndTheRunContinuesWithTheOthers) {
  CardRun run(2);
  run.start();
  run.lose_card(1, "w1", 3);
  run.complain(0, 3);
  run.succeed(1);
  run.orders();
  run.events();
  EXPECT_FALSE(run.lose_card(1, "w1.1", 5));
  run.complain(0, 5);
  EXPECT_EQ(run.orders(), "w0:run");
  EXPECT_EQ(run.generation().members.size(), 1u);
  const std::string said = run.reasons(EventKind::kCardFailure);
  for (const char* part : {"NVIDIA H100", "GPU-1", "0000:11:00.0", kWords,
                           "after 3 and after 5", "left out"}) {
    EXPECT_THAT(said, HasSubstr(part));
  }
  const RunStatus status = run.state.status(run.now);
  ASSERT_EQ(status.left_out_cards.size(), 1u);
  EXPECT_THAT(to_string(status.left_out_cards[0]),
              HasSubstr("NVIDIA H100 (GPU-1, 0000:11:00.0) on h: CUDA error: "
                        "uncorrectable ECC error; it failed after 3"));
  // The lost worker gets no successor, and the other worker keeps its local
  // rank.
  run.pass(60000, {1});
  EXPECT_EQ(run.phase(), RunPhase::kRunning);
  EXPECT_EQ(run.generation().members[0].local_rank, 0);
}

TEST(CardLoss, OtherSlotsKeepTheirPlacesAndSoTheirCards) {
  CardRun run(3);
  run.start();
  run.lose_card(0, "w0", 3);
  run.complain(1, 3);
  run.complain(2, 3);
  run.succeed(0);
  run.lose_card(0, "w0.1", 4);
  run.complain(1, 4);
  run.complain(2, 4);
  EXPECT_EQ(run.generation().members.size(), 2u);
  EXPECT_EQ(run.generation().find("w1")->local_rank, 1);
  EXPECT_EQ(run.generation().find("w2")->local_rank, 2);
}

TEST(CardLoss, MinProcessesWaitsAndNamesTheCard) {
  configs::RunConfig config = ScriptedRun::config();
  config.min_processes = 2;
  CardRun run(ScriptedRun::options(2), config);
  run.start();
  run.lose_card(1, "w1", 3);
  run.complain(0, 3);
  run.succeed(1);
  run.orders();
  run.lose_card(1, "w1.1", 5);
  run.complain(0, 5);
  run.pass(100, {1});
  EXPECT_EQ(run.orders(), "");
  EXPECT_EQ(run.reason(),
            "1 of 2 workers are there, --min-processes 2 are needed; left out: "
            "NVIDIA H100 (GPU-1, 0000:11:00.0) on h");
}

TEST(CardLoss, TheRunEndsWithARemedyWhenTheLastCardFails) {
  CardRun run(1);
  run.start();
  EXPECT_TRUE(run.lose_card(0, "w0", 3));
  run.succeed(0);
  run.orders();
  run.events();
  EXPECT_FALSE(run.lose_card(0, "w0.1", 5));
  EXPECT_TRUE(run.state.over());
  EXPECT_EQ(run.exit_code(), 5);
  EXPECT_EQ(run.reason(),
            "rank 0 (worker w0.1) on h lost its card NVIDIA H100 (GPU-0, "
            "0000:10:00.0): CUDA error: uncorrectable ECC error; it failed "
            "after 3 and after 5 steps, twice within 1000 steps: it is left "
            "out, and no worker is started on it; no card is left: replace it, "
            "or name others with --device; the state after 5 steps is not "
            "saved, continue from the checkpoint after 2 steps with: headroom "
            "train --resume /runs/exp");
  EXPECT_TRUE(run.state.status(run.now).says_how_to_go_on);
}

TEST(CardLoss, ACascadeOfFailuresIsOneEventAndCountsAgainstTheFirstCardOnly) {
  CardRun run(3);
  run.start();
  run.commit(3);
  run.state.card_failed(run.now, "w1", report(1, 3));
  run.state.card_failed(run.now + milliseconds(200), "w0", report(0, 3));
  run.state.card_failed(run.now + seconds(1), "w2", report(2, 3));
  for (const char* worker_id : {"w0", "w1", "w2"}) {
    EXPECT_TRUE(run.exits(worker_id, 6, "").restart);
  }
  EXPECT_EQ(run.events(),
            "card_failure loss_of_process loss_of_process loss_of_process "
            "restart restart restart");
  for (int k = 0; k < 3; ++k) run.succeed(k);
  EXPECT_EQ(run.generation().members.size(), 3u);
  EXPECT_THAT(run.generation().reason, HasSubstr("rank 1 on h lost"));
  int charged = 0;
  for (const CardFailure& one : run.state.cards().all()) {
    charged += one.is_charged ? 1 : 0;
  }
  EXPECT_EQ(charged, 1);
  // The earlier failures of these cards did not count, so these cards have not
  // failed twice.
  run.now += seconds(10);
  run.state.tick(run.now);
  run.state.card_failed(run.now, "w0.1", report(0, 4));
  EXPECT_TRUE(run.state.cards().left_out().empty());
}

TEST(CardLoss, AfterAKilledWorkerErrorsOfCardsAreItsConsequences) {
  CardRun run(2);
  run.start();
  run.exits("w1");
  run.state.card_failed(run.now, "w0", report(0, 3));
  EXPECT_EQ(run.events(), "loss_of_process restart loss_of_process");
  EXPECT_FALSE(run.state.cards().all()[0].is_charged);
}

TEST(CardLoss, ARestartedCoordinatorStillExcludesTheCard) {
  CardRun run(2);
  run.start();
  run.lose_card(1, "w1", 3);
  run.complain(0, 3);
  run.succeed(1);
  wire::RunStateSnapshot image;
  ASSERT_TRUE(image.ParseFromString(
      RunStateSnapshot::of(run.state).SerializeAsString()));
  CardRun next(2);
  RunStateSnapshot::restore(next.state, image, next.now, seconds(10));
  EXPECT_EQ(RunStateSnapshot::of(next.state).SerializeAsString(),
            image.SerializeAsString());
  EXPECT_FALSE(next.lose_card(1, "w1.1", 5));
  EXPECT_EQ(next.state.cards().left_out().size(), 1u);
}

TEST(CardLoss, AWorkerThatFindsItsCardLeftOutOrGoneHasNoSuccessor) {
  for (const auto kind : {CardFault::Kind::kGone, CardFault::Kind::kLeftOut}) {
    CardRun run(2);
    run.start();
    run.state.card_failed(run.now, "w1", report(1, 0, kind));
    EXPECT_FALSE(run.exits("w1", 6, "").restart);
    run.complain(0, 0);
    EXPECT_EQ(run.orders(), "w0:run");
  }
}

}  // namespace
}  // namespace headroom::coordinator
