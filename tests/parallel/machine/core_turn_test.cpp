#include "parallel/machine/core_turn.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "parallel/base/peer_wait.h"
#include "tests/support/temporary_folder.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;
using testing::TemporaryFolder;

// Locks of files belong to an opened file, so two objects in one process
// exclude each other as two processes do.
TEST(CoreTurn, OnlyOneProcessHasTheTurnAndTheyAlternate) {
  const TemporaryFolder root;
  const std::filesystem::path folder = root.path() / "turns";
  std::atomic<int> computing = 0, overlaps = 0;
  std::atomic<bool> both_began = false;
  std::vector<int> order;  // guarded by the turn itself
  const auto train = [&](int run) {
    CoreTurn turn(folder, "0-1");
    for (int step = 0; step < 20; ++step) {
      const CoreTurn::Hold hold = turn.take();
      EXPECT_TRUE(hold.has_turn());
      if (++computing != 1) ++overlaps;
      // The first process may finish some steps before the second one starts.
      if (!order.empty() && order.back() != run) both_began = true;
      if (both_began || step < 5) order.push_back(run);
      std::this_thread::sleep_for(milliseconds(5));
      --computing;
    }
  };
  std::thread first(train, 0), second(train, 1);
  first.join();
  second.join();
  EXPECT_EQ(overlaps, 0);
  int repeated = 0;
  const size_t compared = std::min<size_t>(order.size(), 20);
  for (size_t i = 2; i < compared; ++i) repeated += order[i] == order[i - 1];
  EXPECT_LE(repeated, 6) << "a process that waits is not overtaken";
}

TEST(CoreTurn, AProcessThatDoesNotEndItsTurnDelaysOthersOnlyOnce) {
  const TemporaryFolder root;
  const std::filesystem::path folder = root.path() / "turns";
  CoreTurn stopped(folder, "0-1"), other(folder, "0-1");
  const CoreTurn::Hold held = stopped.take();
  ASSERT_TRUE(held.has_turn());
  const auto begin = CoreTurn::Clock::now();
  EXPECT_FALSE(other.take().has_turn());
  const auto waited = CoreTurn::Clock::now() - begin;
  EXPECT_GE(waited, milliseconds(1900));
  EXPECT_LT(waited, milliseconds(4000));
  const auto again = CoreTurn::Clock::now();
  EXPECT_FALSE(other.take().has_turn());
  EXPECT_LT(CoreTurn::Clock::now() - again, milliseconds(500));
}

// The wait may last longer than the time after which a worker counts as stuck.
TEST(CoreTurn, AProcessThatWaitsForItsTurnIsNotStuck) {
  const TemporaryFolder root;
  const std::filesystem::path folder = root.path() / "turns";
  CoreTurn first(folder, "0-1"), other(folder, "0-1");
  const CoreTurn::Hold held = first.take();
  ASSERT_TRUE(held.has_turn());
  PeerWait::sign_of_life();
  std::thread waits([&] { EXPECT_FALSE(other.take().has_turn()); });
  std::this_thread::sleep_for(milliseconds(1000));
  EXPECT_EQ(PeerWait::quiet(), milliseconds(0));
  waits.join();
  EXPECT_LT(PeerWait::quiet(), milliseconds(900)) << "its step begins now";
}

TEST(CoreTurn, OtherCoresAndAFolderThatOthersMayUseAreNotWaitedFor) {
  const TemporaryFolder root;
  CoreTurn turn(root.path() / "turns", "0-1"),
      other(root.path() / "turns", "2-3");
  const CoreTurn::Hold held = turn.take();
  EXPECT_TRUE(other.take().has_turn());
  const std::filesystem::path open = root.folder("open");
  ASSERT_EQ(::chmod(open.c_str(), 0777), 0);
  CoreTurn in_open_folder(open, "0-1");
  EXPECT_FALSE(in_open_folder.take().has_turn());
  struct stat about {};
  ASSERT_EQ(::stat((root.path() / "turns").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
}

// A process that is stopped computes nothing, like one that sleeps.
TEST(CoreTurn, TimeInWhichAProcessWasStoppedDoesNotMakeItPatient) {
  const TemporaryFolder root;
  CoreTurn turn(root.path() / "turns", "0-1");
  {
    const CoreTurn::Hold hold = turn.take();
    std::this_thread::sleep_for(milliseconds(1000));
  }
  CoreTurn other(root.path() / "turns", "0-1");
  const CoreTurn::Hold held = other.take();
  const auto begin = CoreTurn::Clock::now();
  EXPECT_FALSE(turn.take().has_turn());
  EXPECT_LT(CoreTurn::Clock::now() - begin, milliseconds(3500));
}

TEST(CoreTurn, PatienceHasALeastAndAMost) {
  using std::chrono::seconds;
  EXPECT_EQ(CoreTurn::patience_after({}), seconds(2));
  EXPECT_EQ(CoreTurn::patience_after(seconds(3)), seconds(12));
  EXPECT_EQ(CoreTurn::patience_after(std::chrono::hours(1)), seconds(30));
}

// Linux has a nice value and a policy for each thread.
TEST(CoreTurn, AProcessDoesNotWaitForOneOfAnotherPriority) {
  const std::string own = turn_name("0-1");
  EXPECT_EQ(own, turn_name("0-1"));
  std::string nicer, other_policy;
  std::thread([&] {
    ASSERT_EQ(::setpriority(PRIO_PROCESS, 0, 19), 0);
    nicer = turn_name("0-1");
    const sched_param none{};
    const int other =
        ::sched_getscheduler(0) == SCHED_IDLE ? SCHED_BATCH : SCHED_IDLE;
    ASSERT_EQ(::sched_setscheduler(0, other, &none), 0);
    other_policy = turn_name("0-1");
  }).join();
  EXPECT_NE(nicer, own);
  EXPECT_NE(other_policy, nicer);
}

TEST(CoreTurn, AProcessWithPeersTakesNone) {
  EXPECT_FALSE(take_core_turn(/*num_ranks=*/2, /*threads=*/2).has_turn());
}

}  // namespace
}  // namespace headroom
