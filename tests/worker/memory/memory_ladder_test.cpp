#include "worker/memory/memory_ladder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace headroom::memory {
namespace {

using Move = LadderMove;

LadderRungs all_rungs() {
  return {{"the plan's policies", "layers are lean", "layers are recomputed",
           "layers are offloaded"},
          {},
          {4, 2},
          ""};
}

// Two ranks agree on their rungs at the start of a generation.
std::pair<LadderState, LadderState> next_generation(const LadderState& one,
                                                    const LadderState& other) {
  SharedRungs maxima = shared_rungs(one, 0, 2);
  const SharedRungs theirs = shared_rungs(other, 1, 2);
  for (size_t i = 0; i < maxima.size(); ++i) {
    maxima[i] = std::max(maxima[i], theirs[i]);
  }
  return {take_over(maxima, one, 2).state, take_over(maxima, other, 2).state};
}

// Walks the ladder as the trainer does, with all other ranks calm.
class Walk {
 public:
  explicit Walk(LadderRungs rungs) : rungs_(std::move(rungs)) {}

  Move fail() {
    const LadderDecision decision = after_failure(rungs_, state);
    state = next_generation(decision.state, LadderState{}).first;
    reason = decision.reason;
    return decision.move;
  }
  Move commit() {
    const LadderDecision decision = after_commit(rungs_, state);
    state = decision.state;
    reason = decision.reason;
    return decision.move;
  }
  // Returns the number of calm steps that commit before the ladder moves, or -1
  // if it does not move.
  int64_t calm_steps_before_a_move() {
    for (int64_t step = 1; step <= 10 * kCalmSteps; ++step) {
      if (commit() != Move::kStay) return step;
    }
    return -1;
  }

  LadderState state;
  std::string reason;

 private:
  const LadderRungs rungs_;
};

TEST(MemoryLadder, AllRungsOfOneStepInOrder) {
  Walk walk(all_rungs());
  EXPECT_EQ(walk.fail(), Move::kTryAgain);
  EXPECT_EQ(walk.reason, "caches are released and the step is tried again");
  EXPECT_EQ(walk.fail(), Move::kLeanerPolicy);
  EXPECT_EQ(walk.reason, "from now on layers are lean");
  EXPECT_EQ(walk.fail(), Move::kLeanerPolicy);
  EXPECT_EQ(walk.reason, "from now on layers are recomputed");
  EXPECT_EQ(walk.fail(), Move::kLeanerPolicy);
  EXPECT_EQ(walk.reason, "from now on layers are offloaded");
  EXPECT_EQ(walk.fail(), Move::kSmallerMicroBatch);
  EXPECT_EQ(walk.reason, "from now on micro-batches of 4 on all ranks");
  EXPECT_EQ(walk.fail(), Move::kSmallerMicroBatch);
  EXPECT_EQ(walk.reason, "from now on micro-batches of 2 on all ranks");
  EXPECT_EQ(walk.fail(), Move::kNothingLeft);
  EXPECT_EQ(walk.reason,
            "nothing leaner is left: the micro-batch is at its smallest");
  EXPECT_EQ(walk.state.policy, 3);
  EXPECT_EQ(walk.state.num_cuts, 2);
}

TEST(MemoryLadder, SkippedRungsAreNamedWithTheirReason) {
  Walk walk({{"the plan's policies", "layers are offloaded"},
             {"lean is skipped: no layer keeps more",
              "recompute is skipped: no layer keeps more"},
             {},
             "a micro-batch of 2 is no more than one batch-norm group of 2"});
  walk.fail();
  EXPECT_EQ(walk.fail(), Move::kLeanerPolicy);
  EXPECT_EQ(walk.reason,
            "from now on layers are offloaded (lean is skipped: no layer keeps "
            "more; recompute is skipped: no layer keeps more)");
  EXPECT_EQ(walk.fail(), Move::kNothingLeft);
  EXPECT_EQ(walk.reason,
            "nothing leaner is left: a micro-batch of 2 is no more than one "
            "batch-norm group of 2 (lean is skipped: no layer keeps more; "
            "recompute is skipped: no layer keeps more)");
}

TEST(MemoryLadder, TheFirstFailureOfEveryStepIsTriedAgain) {
  Walk walk(all_rungs());
  for (int step = 0; step < 10; ++step) {
    EXPECT_EQ(walk.fail(), Move::kTryAgain) << step;
    EXPECT_EQ(walk.commit(), Move::kStay) << step;
  }
  EXPECT_EQ(walk.state.policy, 0);
  EXPECT_EQ(walk.fail(), Move::kTryAgain);
  EXPECT_EQ(walk.fail(), Move::kLeanerPolicy);
  walk.commit();
  EXPECT_EQ(walk.fail(), Move::kTryAgain) << "also on a leaner rung";
  EXPECT_EQ(walk.state.policy, 1);
}

TEST(MemoryLadder, GivesBackOneRungOnceAfterCalmSteps) {
  Walk walk(all_rungs());
  for (int i = 0; i < 3; ++i) walk.fail();
  ASSERT_EQ(walk.state.policy, 2);
  EXPECT_EQ(walk.calm_steps_before_a_move(), kCalmSteps);
  EXPECT_EQ(walk.reason, "after 20 calm steps layers are lean again");
  EXPECT_EQ(walk.state.policy, 1);
  EXPECT_EQ(walk.calm_steps_before_a_move(), -1) << "one rung, once";
}

TEST(MemoryLadder, NeverOscillates) {
  Walk walk(all_rungs());
  for (int i = 0; i < 2; ++i) walk.fail();
  EXPECT_EQ(walk.calm_steps_before_a_move(), kCalmSteps);
  EXPECT_EQ(walk.state.policy, 0);
  EXPECT_EQ(walk.fail(), Move::kTryAgain);
  EXPECT_EQ(walk.fail(), Move::kLeanerPolicy);
  EXPECT_EQ(walk.calm_steps_before_a_move(), -1) << "lean for good";
  EXPECT_EQ(walk.state.policy, 1);
}

TEST(MemoryLadder, ACalmStepIsOneInWhichNoRankFailed) {
  Walk walk(all_rungs());
  for (int i = 0; i < 2; ++i) walk.fail();
  for (int64_t step = 1; step < kCalmSteps; ++step) walk.commit();
  walk.state = next_generation(walk.state, {}).first;  // another rank failed
  EXPECT_EQ(walk.calm_steps_before_a_move(), kCalmSteps);
}

TEST(MemoryLadder, TheMicroBatchComesBackBeforeThePolicies) {
  Walk walk(all_rungs());
  for (int i = 0; i < 6; ++i) walk.fail();
  ASSERT_EQ(walk.state.num_cuts, 2);
  EXPECT_EQ(walk.calm_steps_before_a_move(), kCalmSteps);
  EXPECT_EQ(walk.reason, "after 20 calm steps micro-batches of 4 again");
  EXPECT_EQ(walk.state.num_cuts, 1);
  EXPECT_EQ(walk.state.policy, 3);
  EXPECT_EQ(walk.calm_steps_before_a_move(), -1);

  Walk once(all_rungs());
  for (int i = 0; i < 5; ++i) once.fail();
  EXPECT_EQ(once.calm_steps_before_a_move(), kCalmSteps);
  EXPECT_EQ(once.reason, "after 20 calm steps the plan's micro-batches again");
  EXPECT_EQ(once.calm_steps_before_a_move(), kCalmSteps);
  EXPECT_EQ(once.reason, "after 20 calm steps layers are recomputed again");
}

// All ranks use the same number of micro-batches, whatever their rungs are.
TEST(MemoryLadder, RanksAgreeOnTheMicroBatch) {
  const LadderRungs full = all_rungs();
  LadderRungs short_ladder = full;
  short_ladder.policies.resize(1);
  LadderState failing, other;
  for (int i = 0; i < 2; ++i) {
    std::tie(failing, other) =
        next_generation(after_failure(short_ladder, failing).state, other);
  }
  EXPECT_EQ(failing.num_cuts, 1);
  EXPECT_EQ(other.num_cuts, 1);
  for (int64_t step = 1; step <= 3 * kCalmSteps; ++step) {
    const LadderDecision one = after_commit(short_ladder, failing);
    const LadderDecision two = after_commit(full, other);
    failing = one.state;
    other = two.state;
    EXPECT_EQ(failing.num_cuts, other.num_cuts) << step;
    EXPECT_EQ(one.move, two.move) << step;
  }
  EXPECT_EQ(failing.num_cuts, 0);
}

TEST(MemoryLadder, TheLowestRankWithoutARungLeftIsReportedOnce) {
  LadderRungs rungs = all_rungs();
  rungs.policies.resize(1);
  rungs.micro_batches.clear();
  LadderState state;
  for (int i = 0; i < 2; ++i) state = after_failure(rungs, state).state;
  ASSERT_TRUE(state.is_exhausted);
  SharedRungs maxima = shared_rungs(LadderState{}, 0, 4);
  for (const int rank : {3, 1}) {
    const SharedRungs one = shared_rungs(state, rank, 4);
    for (size_t i = 0; i < maxima.size(); ++i) {
      maxima[i] = std::max(maxima[i], one[i]);
    }
  }
  const AgreedRungs agreed = take_over(maxima, state, 4);
  EXPECT_EQ(agreed.exhausted_rank, 1);
  EXPECT_FALSE(agreed.state.is_exhausted);
}

// Whatever fails, a step ends after finitely many failures, and a run changes
// its rungs finitely often.
TEST(MemoryLadder, EverySequenceIsFinite) {
  for (uint32_t seed = 1; seed < 200; ++seed) {
    Walk walk(all_rungs());
    uint32_t random = seed;
    int moves = 0;
    bool ended = false;
    for (int i = 0; i < 2000 && !ended; ++i) {
      random = random * 1664525u + 1013904223u;
      const Move move = random >> 24 < 20 ? walk.fail() : walk.commit();
      moves += move != Move::kStay && move != Move::kTryAgain ? 1 : 0;
      ended = move == Move::kNothingLeft;
      EXPECT_GE(walk.state.policy, 0);
      EXPECT_GE(walk.state.num_cuts, 0);
    }
    EXPECT_LE(moves, 6 + 2 + 2 + 1) << seed;
  }
}

}  // namespace
}  // namespace headroom::memory
