#include "worker/optim/loss_scale.h"

#include <gtest/gtest.h>

namespace headroom::optim {
namespace {

TEST(LossScale, DoublesAfter2000FiniteSteps) {
  LossScale scale;
  EXPECT_EQ(scale.value, 65536);
  for (int step = 0; step < 1999; ++step) scale.note_finite();
  EXPECT_EQ(scale, (LossScale{65536, 1999}));
  scale.note_finite();
  EXPECT_EQ(scale, (LossScale{131072, 0}));
}

TEST(LossScale, FallsToHalfAndCountsAnew) {
  LossScale scale{1024, 1999};
  scale.note_overflow();
  EXPECT_EQ(scale, (LossScale{512, 0}));
  for (int step = 0; step < 2000; ++step) scale.note_finite();
  EXPECT_EQ(scale, (LossScale{1024, 0}));
}

TEST(LossScale, FallsNoFurtherThanOne) {
  LossScale scale;
  int falls = 0;
  for (; scale.can_fall(); ++falls) scale.note_overflow();
  EXPECT_EQ(falls, 16);
  EXPECT_EQ(scale.value, 1);
}

TEST(LossScale, GrowsNoFurtherThanAFloat) {
  LossScale scale{0x1p127, 1999};
  scale.note_finite();
  EXPECT_EQ(scale, (LossScale{0x1p127, 0}));
}

}  // namespace
}  // namespace headroom::optim
