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
  // If this test runs as a background job, SIGINT is ignored from the start;
  // the default must be restored.
  std::signal(SIGINT, SIG_DFL);
  interrupts::install(std::chrono::hours(1));  // must not end later tests
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

TEST(Interrupts, EndTheProcessWithoutAWatcher) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_DFL);
        interrupts::install();
        { const interrupts::Watch watch; }
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

TEST(Interrupts, TheSecondEndsAProcessWhoseThreadsAllWait) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_DFL);
        interrupts::install(std::chrono::seconds(1));
        {
          const interrupts::Watch watch;
          std::raise(SIGINT);
          std::this_thread::sleep_for(std::chrono::milliseconds(66));
          std::raise(SIGINT);
        }
        // The process then hangs, as in a destructor that waits forever.
        for (int i = 0; i < 30; ++i) sleep(1);  // a signal ends it early
        std::_Exit(1);
      },
      ::testing::ExitedWithCode(130),
      "did not stop by itself after the second Ctrl-C");
}

TEST(Interrupts, OneAloneLetsAProcessTakeItsTime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_DFL);
        interrupts::install(std::chrono::seconds(1));
        const interrupts::Watch watch;
        std::raise(SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Interrupts, AnEarlierSignalEndsTheWaitAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
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

// Starts a process that waits, and ends its parent. Returns 'y' if the wait
// ends then, 'n' if it does not, '-' if this is unknown.
char answer_of_orphan() {
  int answer[2];
  if (pipe(answer) != 0) return '-';
  const pid_t middle = fork();
  if (middle == 0) {
    if (fork() == 0) {
      interrupts::watch_parent();
      const char said = interrupts::wait(std::chrono::seconds(20)) ? 'y' : 'n';
      _exit(write(answer[1], &said, 1) == 1 ? 0 : 1);
    }
    usleep(300'000);
    _exit(0);
  }
  close(answer[1]);
  char said = '-';
  const auto begin = std::chrono::steady_clock::now();
  if (read(answer[0], &said, 1) != 1) said = '-';
  const auto lasted = std::chrono::steady_clock::now() - begin;
  waitpid(middle, nullptr, 0);
  return lasted < std::chrono::seconds(10) ? said : 'n';
}

// The test runs in a program of its own, in which no interrupt has been counted
// yet.
TEST(Interrupts, TheLossOfAWatchedParentEndsTheWait) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        if (interrupts::count() != 0) std::_Exit(2);
        std::_Exit(answer_of_orphan() == 'y' ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headroom::cli
