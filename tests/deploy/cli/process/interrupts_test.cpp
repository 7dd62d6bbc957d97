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
  EXPECT_EQ(interrupts::count(), 0);
  std::raise(SIGINT);
  std::raise(SIGTERM);
  EXPECT_EQ(interrupts::count(), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(350));
  std::raise(SIGINT);
  EXPECT_EQ(interrupts::count(), 2);
}

}  // namespace
}  // namespace headroom::cli
