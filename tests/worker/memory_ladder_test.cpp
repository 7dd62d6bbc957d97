#include "worker/memory_ladder.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(MemoryLadder, TriesOnceMoreBeforeItClimbs) {
  MemoryLadder ladder(2);
  EXPECT_TRUE(ladder.climb());
  EXPECT_EQ(ladder.rung(), 0);
  EXPECT_TRUE(ladder.climb());
  EXPECT_EQ(ladder.rung(), 1);
}

TEST(MemoryLadder, FailuresOfDifferentStepsDoNotAddUp) {
  MemoryLadder ladder(2);
  for (int step = 0; step < 10; ++step) {
    EXPECT_TRUE(ladder.climb());
    ladder.note_committed();
  }
  EXPECT_EQ(ladder.rung(), 0);
}

TEST(MemoryLadder, EndsOnItsLastRung) {
  MemoryLadder ladder(2);
  ladder.climb();
  ladder.climb();
  for (int i = 1; i < MemoryLadder::kLastAttempts; ++i) {
    EXPECT_TRUE(ladder.climb()) << i;
  }
  EXPECT_FALSE(ladder.climb());
  EXPECT_EQ(ladder.rung(), 1);
}

TEST(MemoryLadder, GoesBackOnceAfterCalmSteps) {
  MemoryLadder ladder(2);
  const auto fail_twice = [&] {
    ladder.climb();
    ladder.climb();
  };
  fail_twice();
  for (int64_t i = 1; i < MemoryLadder::kCalmSteps; ++i) {
    EXPECT_FALSE(ladder.note_committed()) << i;
  }
  EXPECT_TRUE(ladder.note_committed());
  EXPECT_EQ(ladder.rung(), 0);
  fail_twice();
  for (int64_t i = 0; i < 3 * MemoryLadder::kCalmSteps; ++i) {
    EXPECT_FALSE(ladder.note_committed());
  }
  EXPECT_EQ(ladder.rung(), 1) << "never oscillates";
}

}  // namespace
}  // namespace headroom
