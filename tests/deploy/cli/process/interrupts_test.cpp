#include "deploy/cli/process/interrupts.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
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

TEST(Interrupts, OneThatWasThereBeforeIsNotWaitedFor) {
  EXPECT_EXIT(
      {
        std::signal(SIGTERM, SIG_DFL);
        interrupts::install();
        const interrupts::Watch watch;
        std::raise(SIGTERM);
        std::_Exit(interrupts::wait(std::chrono::hours(1)) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// The child's parent is a process that ends while the child waits.
TEST(Interrupts, TheLossOfAWatchedParentEndsTheWait) {
  int answer[2];
  ASSERT_EQ(pipe(answer), 0);
  const pid_t middle = fork();
  if (middle == 0) {
    if (fork() == 0) {
      interrupts::watch_parent();
      const char said = interrupts::wait(std::chrono::seconds(20)) ? 'y' : 'n';
      _exit(write(answer[1], &said, 1) == 1 ? 0 : 1);
    }
    usleep(200'000);
    _exit(0);
  }
  close(answer[1]);
  char said = '-';
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(read(answer[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  close(answer[0]);
  waitpid(middle, nullptr, 0);
}

}  // namespace
}  // namespace headroom::cli
