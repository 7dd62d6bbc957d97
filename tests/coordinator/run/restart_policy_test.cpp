#include "coordinator/run/restart_policy.h"

#include <gtest/gtest.h>

namespace headroom::coordinator {
namespace {

TEST(RestartPolicy, RestartsAtOnceThenAfterADelayThenNotAtAll) {
  const std::vector<int> delays = {0, 250, 500, 1000};
  for (int ends = 1; ends <= 4; ++ends) {
    const RestartDecision decision = decide_restart({137, ends, false});
    EXPECT_TRUE(decision.restart);
    EXPECT_FALSE(decision.is_crash_loop);
    EXPECT_EQ(decision.delay.count(), delays[static_cast<size_t>(ends - 1)]);
  }
  const RestartDecision last = decide_restart({137, 5, false});
  EXPECT_FALSE(last.restart);
  EXPECT_TRUE(last.is_crash_loop);
  EXPECT_EQ(last.reason,
            "it has ended 5 times in a row without a step between");
}

TEST(RestartPolicy, AWorkerThatWouldFailAgainIsNotRestarted) {
  for (const int code : {2, 3, 4, 127}) {
    EXPECT_FALSE(decide_restart({code, 1, false}).restart) << code;
    EXPECT_FALSE(decide_restart({code, 9, false}).is_crash_loop) << code;
  }
  for (const int code : {1, 5, 134, 137, 139}) {
    EXPECT_TRUE(decide_restart({code, 1, false}).restart) << code;
  }
  EXPECT_EQ(decide_restart({137, 1, true}).reason,
            "its node is to leave the run");
}

constexpr int kKilled = 137;

TEST(RestartBudget, TheFirstTimeAtOnceThenLaterAndNotForTheFifthTime) {
  RestartBudget budget;
  for (const int64_t delay : {0, 250, 500, 1000}) {
    const RestartDecision decision = budget.note_end(kKilled, 7);
    EXPECT_TRUE(decision.restart);
    EXPECT_EQ(decision.delay.count(), delay);
  }
  const RestartDecision last = budget.note_end(kKilled, 7);
  EXPECT_FALSE(last.restart);
  EXPECT_EQ(last.reason,
            "it has ended 5 times in a row without a step between");
}

TEST(RestartBudget, AStepBetweenBeginsAnew) {
  RestartBudget budget;
  for (int64_t step = 1; step <= 100; ++step) {
    const RestartDecision decision = budget.note_end(kKilled, step);
    ASSERT_TRUE(decision.restart) << step;
    EXPECT_EQ(decision.delay.count(), 0);
  }
}

}  // namespace
}  // namespace headroom::coordinator
