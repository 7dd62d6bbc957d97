#include "worker/kernels/cpu/crowd_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <sstream>

namespace headroom::kernels {
namespace {

// Half a second on two cores, of which this process uses both.
CrowdSigns signs(double waiting, double others) {
  return {.seconds = 0.5,
          .waiting_seconds = waiting,
          .own_seconds = 0.9,
          .all_seconds = 0.9 + others};
}

TEST(CrowdWatch, AnotherRunOnTheSameCoresIsACrowd) {
  EXPECT_TRUE(is_crowded(signs(0.4, 0.5), 2, 2, false));
}

TEST(CrowdWatch, ALoaderThatKeepsItsOwnProcessWaitingIsNone) {
  EXPECT_FALSE(is_crowded(signs(0.4, 0.01), 2, 2, false));
}

TEST(CrowdWatch, IdleProgramsThatWaitForUsAreNone) {
  EXPECT_FALSE(is_crowded(signs(0.001, 0.6), 2, 2, false));
}

TEST(CrowdWatch, OthersOnSpareCoresAreNone) {
  EXPECT_FALSE(is_crowded(signs(0.4, 2.0), 2, 8, false));
  EXPECT_TRUE(is_crowded(signs(0.4, 3.5), 2, 8, false));
}

TEST(CrowdWatch, TheAnswerChangesBackOnlyOnAClearSign) {
  const CrowdSigns little = signs(0.05, 0.2);
  EXPECT_FALSE(is_crowded(little, 2, 2, false));
  EXPECT_TRUE(is_crowded(little, 2, 2, true));
  EXPECT_FALSE(is_crowded(signs(0.05, 0.01), 2, 2, true));
}

// A machine of three cores, of which this process may use two.
TEST(CrowdWatch, ProgramsOnOtherCoresAreNotCounted) {
  std::istringstream stat(
      "cpu  900 90 9 5000\n"
      "cpu0 100 10 1 5000\ncpu1 700 70 7 0\ncpu2 100 10 1 5000\n"
      "intr 12345 1 2\n");
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(0, &cores);
  CPU_SET(2, &cores);
  EXPECT_EQ(busy_ticks(stat, cores), 222);
}

TEST(CrowdWatch, AWatchEndsAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  { const CrowdWatch watch(2); }
  { const CrowdWatch nothing_to_watch(1); }
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(400));
}

}  // namespace
}  // namespace headroom::kernels
