#include "parallel/predict/tape.h"

#include <gtest/gtest.h>

namespace headroom::predict {
namespace {

TEST(Tape, ABufferLivesAsLongAsSomebodyHoldsIt) {
  Tape tape;
  Memory a = tape.allocate(100);
  const Memory same = a;
  {
    const Memory b = tape.allocate(50);
    EXPECT_EQ(tape.live_bytes(), 150);
  }
  a.reset();
  EXPECT_EQ(tape.live_bytes(), 100);
  EXPECT_EQ(tape.peak_bytes(), 150);
  tape.reset_peak();
  EXPECT_EQ(tape.peak_bytes(), 100);
  tape.touch(500);
  EXPECT_EQ(tape.live_bytes(), 100);
  EXPECT_EQ(tape.peak_bytes(), 600);
}

TEST(Tape, KnowsWhatEachRowHas) {
  Tape tape;
  const Memory nobodys = tape.allocate(1);
  tape.set_row(3);
  const Memory third = tape.allocate(10);
  tape.set_row(0);
  const Memory first = tape.allocate(100);
  EXPECT_EQ(tape.live_bytes_of(-1), 1);
  EXPECT_EQ(tape.live_bytes_of(3), 10);
  EXPECT_EQ(tape.live_bytes_of(0), 100);
  EXPECT_EQ(tape.live_bytes_of(7), 0);
}

}  // namespace
}  // namespace headroom::predict
