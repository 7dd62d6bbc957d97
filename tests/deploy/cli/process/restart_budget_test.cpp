#include "deploy/cli/process/restart_budget.h"

#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

constexpr int kKilled = 137;

TEST(RestartBudget, TheFirstTimeAtOnceThenLaterAndNotForTheFifthTime) {
  RestartBudget budget;
  for (const int64_t delay : {0, 250, 500, 1000}) {
    const coordinator::RestartDecision decision = budget.note_end(kKilled, 7);
    EXPECT_TRUE(decision.restart);
    EXPECT_EQ(decision.delay.count(), delay);
  }
  const coordinator::RestartDecision last = budget.note_end(kKilled, 7);
  EXPECT_FALSE(last.restart);
  EXPECT_EQ(last.reason,
            "it has ended 5 times in a row without a step between");
}

TEST(RestartBudget, AStepBetweenBeginsAnew) {
  RestartBudget budget;
  for (int64_t step = 1; step <= 100; ++step) {
    const coordinator::RestartDecision decision =
        budget.note_end(kKilled, step);
    ASSERT_TRUE(decision.restart) << step;
    EXPECT_EQ(decision.delay.count(), 0);
  }
}

}  // namespace
}  // namespace headroom::cli
