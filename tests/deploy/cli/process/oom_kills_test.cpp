#include "deploy/cli/process/oom_kills.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/temporary_folder.h"

namespace headroom::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class OomKillsTest : public ::testing::Test {
 protected:
  OomKillsTest() {
    count(3);
    setenv(kMachineRootVariable, root_.path().c_str(), 1);
  }
  ~OomKillsTest() override { unsetenv(kMachineRootVariable); }

  void count(int kills) const {
    root_.write("proc/meminfo", "MemTotal: 67108864 kB\n");
    root_.write("proc/vmstat", "oom_kill " + std::to_string(kills) + "\n");
  }

  TemporaryFolder root_;
  const cli::OomKills::Clock::time_point begin_ = cli::OomKills::Clock::now();
};

TEST_F(OomKillsTest, AKillOfThisMomentExplainsOneProcess) {
  cli::OomKills kills;
  EXPECT_EQ(kills.explain_one(begin_), "") << "counted before the start";
  count(4);
  EXPECT_EQ(kills.explain_one(begin_), "64 GiB of this machine");
  EXPECT_EQ(kills.explain_one(begin_), "");
}

TEST_F(OomKillsTest, AKillOfHoursAgoExplainsNothing) {
  cli::OomKills kills;
  count(4);
  kills.watch(begin_ + seconds(1));
  EXPECT_EQ(kills.explain_one(begin_ + std::chrono::hours(2)), "");
}

TEST_F(OomKillsTest, AKillThatTheWatchHasSeenExplainsForThreeSeconds) {
  cli::OomKills kills;
  count(5);
  kills.watch(begin_ + seconds(1));
  EXPECT_NE(kills.explain_one(begin_ + seconds(4)), "");
  EXPECT_EQ(kills.explain_one(begin_ + seconds(4) + milliseconds(1)), "");
}

}  // namespace
}  // namespace headroom::testing
