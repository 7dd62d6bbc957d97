#include "parallel/predict/live_buffers.h"

#include <gtest/gtest.h>

namespace headroom::predict {
namespace {

TEST(LiveBuffers, ABufferLivesAsLongAsItIsHeld) {
  LiveBuffers buffers;
  Memory a = buffers.allocate(100);
  const Memory same = a;
  {
    const Memory b = buffers.allocate(50);
    EXPECT_EQ(buffers.live_bytes(), 150);
  }
  a.reset();
  EXPECT_EQ(buffers.live_bytes(), 100);
  EXPECT_EQ(buffers.peak_bytes(), 150);
  buffers.reset_peak();
  EXPECT_EQ(buffers.peak_bytes(), 100);
  buffers.touch(500);
  EXPECT_EQ(buffers.live_bytes(), 100);
  EXPECT_EQ(buffers.peak_bytes(), 600);
}

TEST(LiveBuffers, KnowsTheBytesOfEachLayer) {
  LiveBuffers buffers;
  const Memory nobodys = buffers.allocate(1);
  buffers.set_layer(3);
  const Memory third = buffers.allocate(10);
  buffers.set_layer(0);
  const Memory first = buffers.allocate(100);
  EXPECT_EQ(buffers.live_bytes_of(-1), 1);
  EXPECT_EQ(buffers.live_bytes_of(3), 10);
  EXPECT_EQ(buffers.live_bytes_of(0), 100);
  EXPECT_EQ(buffers.live_bytes_of(7), 0);
}

}  // namespace
}  // namespace headroom::predict
