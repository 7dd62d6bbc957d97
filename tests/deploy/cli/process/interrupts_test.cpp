#include "deploy/cli/process/interrupts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace headroom::cli {
namespace {

TEST(Interrupts, SignalsInQuickSuccessionAreOneRequest) {
  // Ignored from the start in a background job, and left so.
  std::signal(SIGINT, SIG_DFL);
  interrupts::install();
  const interrupts::Watch watch;
  EXPECT_EQ(interrupts::count(), 0);
  std::raise(SIGINT);
  std::raise(SIGTERM);
  EXPECT_EQ(interrupts::count(), 1);
  for (int times = 2; times <= 4; ++times) {
    std::this_thread::sleep_for(std::chrono::milliseconds(66));
    std::raise(SIGINT);
    EXPECT_EQ(interrupts::count(), times);
  }
}

TEST(Interrupts, EndTheProcessWhereNobodyWatches) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_DFL);
        interrupts::install();
        { const interrupts::Watch watch; }
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace headroom::cli
