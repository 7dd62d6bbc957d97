#include "parallel/plan/memory_tape.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(MemoryTape, ABufferLivesUntilTheLastRelease) {
  MemoryTape tape;
  const auto a = tape.allocate(10);
  tape.retain(a);
  EXPECT_TRUE(tape.is_shared(a));
  tape.release(a);
  EXPECT_EQ(tape.live_bytes(), 10);
  tape.release(a);
  EXPECT_EQ(tape.live_bytes(), 0);
  EXPECT_EQ(tape.peak_bytes(), 10);
}

TEST(MemoryTape, WhatIsTouchedCountsForThePeakOnly) {
  MemoryTape tape;
  tape.allocate(10);
  tape.touch(5);
  EXPECT_EQ(tape.live_bytes(), 10);
  EXPECT_EQ(tape.peak_bytes(), 15);
}

}  // namespace
}  // namespace headroom
