#include "coordinator/run/run_ending.h"

#include <gtest/gtest.h>

#include "tests/coordinator/run/moments.h"

namespace headroom::coordinator {
namespace {

using std::chrono::milliseconds;
using Kind = EndingDecision::Kind;

Survivor survivor(int rank, std::optional<int64_t> committed_steps = {}) {
  Survivor entry;
  entry.worker_id = "w" + std::to_string(rank);
  entry.rank = rank;
  entry.committed_steps = committed_steps;
  return entry;
}

// A run of four ranks, of which rank 1 closed its connection at 1 s.
RunEnding lost_rank_1() {
  RunEnding ending;
  ending.begin = at(1000);
  Loss loss;
  loss.worker_id = "w1";
  loss.hostname = "h";
  loss.rank = 1;
  loss.how = "closed its connection";
  loss.time = at(1000);
  ending.loss = loss;
  ending.survivors = {survivor(0), survivor(2), survivor(3)};
  return ending;
}

EndingDecision decide(int ms, const RunEnding& ending) {
  return decide_ending(at(ms), ending, EndingOptions());
}

TEST(DecideEnding, WaitsForTheSurvivorsReports) {
  RunEnding ending = lost_rank_1();
  ending.survivors[0].committed_steps = 12;
  const EndingDecision decision = decide(1100, ending);
  EXPECT_EQ(decision.kind, Kind::kWait);
  EXPECT_EQ(decision.reason, "2 of 3 survivors have not said how far they are");
}

TEST(DecideEnding, TheOneWithTheMostCommittedStepsSaves) {
  RunEnding ending = lost_rank_1();
  ending.survivors = {survivor(0, 12), survivor(2, 13), survivor(3, 12)};
  const EndingDecision decision = decide(1100, ending);
  EXPECT_EQ(decision.kind, Kind::kSave);
  EXPECT_EQ(decision.worker_id, "w2");
  EXPECT_EQ(decision.reason,
            "rank 2 saves the state after 13 steps, the newest that a "
            "survivor committed");
}

TEST(DecideEnding, AmongEqualsTheLowestRankSaves) {
  RunEnding ending = lost_rank_1();
  ending.survivors = {survivor(0, 12), survivor(2, 12), survivor(3, 12)};
  EXPECT_EQ(decide(1100, ending).worker_id, "w0");
}

TEST(DecideEnding, ASurvivorThatCannotSaveIsSkipped) {
  RunEnding ending = lost_rank_1();
  ending.survivors = {survivor(0, 14), survivor(2, 13), survivor(3, 12)};
  ending.survivors[0].can_save = false;
  ending.survivors[1].gone = true;
  EXPECT_EQ(decide(1100, ending).worker_id, "w3");
}

TEST(DecideEnding, ARankWithOnlyAPartOfTheStateIsNotAskedToSave) {
  RunEnding ending = lost_rank_1();
  ending.survivors = {survivor(0, 14), survivor(2, 14), survivor(3, 14)};
  for (Survivor& entry : ending.survivors) entry.state = {true, 10};
  ending.loss->exit_code = 137;
  EXPECT_EQ(decide(1100, ending).kind, Kind::kOver);
  ending.survivors[1].state.holds_a_part = false;
  EXPECT_EQ(decide(1100, ending).worker_id, "w2");
}

TEST(DecideEnding, AfterTheTimeoutTheSilentAreNotWaitedFor) {
  RunEnding ending = lost_rank_1();
  ending.survivors = {survivor(0), survivor(2, 12), survivor(3)};
  EXPECT_EQ(decide(130999, ending).kind, Kind::kWait);
  const EndingDecision decision = decide(131000, ending);
  EXPECT_EQ(decision.kind, Kind::kSave);
  EXPECT_EQ(decision.worker_id, "w2");
}

TEST(DecideEnding, LostMembersAreNotWaitedFor) {
  RunEnding ending = lost_rank_1();
  ending.survivors = {survivor(0, 12), survivor(2), survivor(3)};
  ending.survivors[1].gone = true;
  ending.survivors[2].gone = true;
  EXPECT_EQ(decide(1100, ending).worker_id, "w0");
}

TEST(DecideEnding, WhileOneSavesNothingElseHappens) {
  RunEnding ending = lost_rank_1();
  ending.survivors = {survivor(0, 12), survivor(2), survivor(3)};
  ending.saver = "w0";
  ending.saver_since = at(11000);
  const EndingDecision decision = decide(60000, ending);
  EXPECT_EQ(decision.kind, Kind::kWait);
  EXPECT_EQ(decision.reason, "worker w0 saves the state");
  EXPECT_FALSE(give_up_saver(at(130999), ending, EndingOptions()));
  RunEnding saved = ending;
  saved.saved_step = 12;
  EXPECT_FALSE(give_up_saver(at(131000), saved, EndingOptions()));
  const auto given_up = give_up_saver(at(131000), ending, EndingOptions());
  ASSERT_TRUE(given_up);
  EXPECT_EQ(given_up->worker_id, "w0");
  EXPECT_FALSE(ending.survivors[0].can_save);
  EXPECT_EQ(ending.saver, "");
}

TEST(DecideEnding, TheAgentsReportIsAwaitedButNotForLong) {
  RunEnding ending = lost_rank_1();
  ending.survivors = {survivor(0, 12)};
  ending.saver = "w0";
  ending.saved_step = 12;
  EXPECT_EQ(decide(2999, ending).reason,
            "waiting for the agent's report of the exit");
  EXPECT_EQ(decide(3000, ending).kind, Kind::kOver);
  ending.loss->exit_code = 137;
  EXPECT_EQ(decide(1200, ending).kind, Kind::kOver);
}

TEST(DecideEnding, WithoutAnAgentNothingIsAwaited) {
  RunEnding ending = lost_rank_1();
  ending.survivors.clear();
  EXPECT_EQ(decide(1200, ending).kind, Kind::kWait);
  ending.loss->agent_silent = true;
  EXPECT_EQ(decide(1200, ending).kind, Kind::kOver);
  ending.loss->agent_silent = false;
  ending.loss->explained = true;
  EXPECT_EQ(decide(1200, ending).kind, Kind::kOver);
}

TEST(DecideEnding, WithoutACommittedStepNothingIsSaved) {
  RunEnding ending = lost_rank_1();
  ending.loss->exit_code = 1;
  ending.survivors = {survivor(0, 0), survivor(2, 0), survivor(3, 0)};
  EXPECT_EQ(decide(1100, ending).kind, Kind::kOver);
}

TEST(DescribeEnding, NamesRankWorkerSignalLastOutputAndTheResumeCommand) {
  RunEnding ending = lost_rank_1();
  ending.loss->exit_code = 137;
  ending.loss->last_words = "epoch 3\nhalf way\n";
  ending.saved_step = 12;
  EXPECT_EQ(describe_ending(ending, "/runs/exp").text,
            "rank 1 (worker w1) on h was killed by signal 9 (SIGKILL); its "
            "last words: epoch 3 | half way; the state after 12 steps is "
            "saved, continue with: headroom train --resume /runs/exp");
  EXPECT_TRUE(describe_ending(ending, "/runs/exp").says_how_to_go_on);
}

TEST(DescribeEnding, GivesTheCauseWhereTheExitCodeDoesNot) {
  RunEnding ending = lost_rank_1();
  ending.loss->how = "was silent for 2000 ms";
  ending.loss->explained = true;
  ending.loss->exit_code = 137;  // the agent killed it because it was silent
  ending.known_steps = 30;
  EXPECT_EQ(describe_ending(ending, "/runs/exp").text,
            "rank 1 (worker w1) on h was silent for 2000 ms; the state after "
            "30 steps is not saved");
  EXPECT_FALSE(describe_ending(ending, "/runs/exp").says_how_to_go_on)
      << "whoever sees the folder does";
}

TEST(DescribeEnding, NamesTheCheckpointThatIsLeft) {
  RunEnding ending = lost_rank_1();
  ending.survivors = {survivor(0, 14), survivor(2, 14), survivor(3)};
  ending.survivors[0].state = {true, 5};
  ending.survivors[1].state = {true, 10};
  EXPECT_EQ(describe_ending(ending, "/runs/exp").text,
            "rank 1 (worker w1) on h closed its connection; the state after "
            "14 steps is not saved, continue from the checkpoint after 10 "
            "steps with: headroom train --resume /runs/exp");
}

TEST(DescribeEnding, ACheckpointOfTheNewestStepIsTheSavedState) {
  RunEnding ending = lost_rank_1();
  ending.survivors = {survivor(0, 14), survivor(2, 14)};
  for (Survivor& entry : ending.survivors) entry.state = {true, 14};
  EXPECT_EQ(describe_ending(ending, "/runs/exp").text,
            "rank 1 (worker w1) on h closed its connection; the state after "
            "14 steps is saved, continue with: headroom train --resume "
            "/runs/exp");
}

TEST(DescribeEnding, WithoutAKnownCheckpointTheReasonNamesTheFolder) {
  RunEnding ending = lost_rank_1();
  ending.survivors = {survivor(0, 3), survivor(2, 3)};
  for (Survivor& entry : ending.survivors) entry.state = {true, 0};
  EXPECT_EQ(describe_ending(ending, "/runs/exp").text,
            "rank 1 (worker w1) on h closed its connection; the state after 3 "
            "steps is not saved; start the run again if its checkpoints/ is "
            "empty");
  EXPECT_FALSE(describe_ending(ending, "/runs/exp").says_how_to_go_on);
}

TEST(DescribeEnding, BeforeTheFirstStepThereIsNothingToResume) {
  RunEnding ending;
  Loss loss;
  loss.worker_id = "w1";
  loss.hostname = "h";
  loss.exit_code = 127;
  loss.last_words = "headroom-worker: not found";
  ending.loss = loss;
  EXPECT_EQ(describe_ending(ending, "/runs/exp").text,
            "worker w1 on h ended with exit code 127; its last words: "
            "headroom-worker: not found; no step had been committed, start "
            "the run again");
}

TEST(DescribeEnding, WithNoMemberLostTheReportedFailureIsQuoted) {
  RunEnding ending;
  ending.first_complaint = "[communication] reset by peer";
  ending.survivors = {survivor(0, 4)};
  ending.saved_step = 4;
  EXPECT_EQ(describe_ending(ending, "/runs/exp").text,
            "the workers lost each other though none has ended: "
            "[communication] reset by peer; the state after 4 steps is saved, "
            "continue with: headroom train --resume /runs/exp");
}

TEST(DescribeExit, NamesSignalsAndCodes) {
  EXPECT_EQ(describe_exit(139), "was killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(describe_exit(134), "was killed by signal 6 (SIGABRT)");
  EXPECT_EQ(describe_exit(1), "ended with exit code 1");
  EXPECT_EQ(describe_exit(128), "ended with exit code 128");
  EXPECT_EQ(describe_exit(255), "ended with exit code 255");
}

TEST(OneLine, KeepsTheLastThreeLines) {
  EXPECT_EQ(one_line(""), "");
  EXPECT_EQ(one_line("\n\n \n"), "");
  EXPECT_EQ(one_line("one"), "one");
  EXPECT_EQ(one_line("a\nb\r\n\n\x1b[31mc\n d \n\n"), "b | [31mc |  d ");
}

TEST(OneLine, CutsFromTheFrontAndStaysUtf8) {
  const std::string long_line = "start" + std::string(400, 'x');
  EXPECT_EQ(one_line(long_line), "..." + std::string(400, 'x'));
  const std::string cut = one_line("\u20ac" + std::string(399, 'x'));
  EXPECT_EQ(cut, "...?" + std::string(399, 'x'));
}

}  // namespace
}  // namespace headroom::coordinator
