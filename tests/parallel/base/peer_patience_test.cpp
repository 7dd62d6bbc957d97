#include <gtest/gtest.h>

#include <thread>

#include "parallel/base/peer_wait.h"

namespace headroom {
namespace {

using std::chrono::seconds;

constexpr PeerPatience::Time kBegin{};

TEST(PeerPatience, WaitsOfAllRanksEndAtTheLimit) {
  PeerPatience patience(seconds(120), kBegin);
  EXPECT_FALSE(patience.is_over(kBegin + seconds(119), false));
  EXPECT_FALSE(patience.is_over(kBegin + seconds(120), false));
  EXPECT_TRUE(patience.is_over(kBegin + seconds(121), false));
}

TEST(PeerPatience, TimeInWhichAPeerWorksDoesNotCount) {
  PeerPatience patience(seconds(120), kBegin);
  EXPECT_FALSE(patience.is_over(kBegin + seconds(60), false));
  EXPECT_FALSE(patience.is_over(kBegin + seconds(360), true));
  EXPECT_FALSE(patience.is_over(kBegin + seconds(420), false));
  EXPECT_TRUE(patience.is_over(kBegin + seconds(421), false));
}

TEST(PeerPatience, APeerThatWorksForEverIsGivenUpToo) {
  PeerPatience patience(seconds(120), kBegin);
  EXPECT_FALSE(patience.is_over(kBegin + seconds(600), true));
  EXPECT_TRUE(patience.is_over(kBegin + seconds(601), true));
}

// A rank whose disk is slow does not count as waiting for its peers.
TEST(PeerWait, ASlowDiskIsNoWaitForPeersAndNothingIsStuck) {
  const LongWork writing;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(PeerWait::is_waiting());
  EXPECT_EQ(PeerWait::quiet().count(), 0);
  const PeerWait waiting;
  EXPECT_TRUE(PeerWait::is_waiting());
}

TEST(PeerNews, HoldTheLastReport) {
  EXPECT_FALSE(PeerNews::a_peer_works());
  PeerNews::note(true);
  EXPECT_TRUE(PeerNews::a_peer_works());
  PeerNews::note(false);
  EXPECT_FALSE(PeerNews::a_peer_works());
}

}  // namespace
}  // namespace headroom
