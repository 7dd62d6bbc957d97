#include "parallel/predict/memory_timeline.h"

#include <gtest/gtest.h>

namespace headroom::predict {
namespace {

TEST(MemoryTimeline, ABufferLivesAsLongAsItIsHeld) {
  MemoryTimeline timeline;
  Memory a = timeline.allocate(100);
  const Memory same = a;
  {
    const Memory b = timeline.allocate(50);
    EXPECT_EQ(timeline.live_bytes(), 150);
  }
  a.reset();
  EXPECT_EQ(timeline.live_bytes(), 100);
  EXPECT_EQ(timeline.peak_bytes(), 150);
  timeline.reset_peak();
  EXPECT_EQ(timeline.peak_bytes(), 100);
  timeline.touch(500);
  EXPECT_EQ(timeline.live_bytes(), 100);
  EXPECT_EQ(timeline.peak_bytes(), 600);
}

TEST(MemoryTimeline, KnowsTheBytesOfEachLayer) {
  MemoryTimeline timeline;
  const Memory nobodys = timeline.allocate(1);
  timeline.set_layer(3);
  const Memory third = timeline.allocate(10);
  timeline.set_layer(0);
  const Memory first = timeline.allocate(100);
  EXPECT_EQ(timeline.live_bytes_of(-1), 1);
  EXPECT_EQ(timeline.live_bytes_of(3), 10);
  EXPECT_EQ(timeline.live_bytes_of(0), 100);
  EXPECT_EQ(timeline.live_bytes_of(7), 0);
}

}  // namespace
}  // namespace headroom::predict
