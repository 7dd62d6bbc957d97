#include "coordinator/service/call_guard.h"

#include <gtest/gtest.h>

#include "proto/channel_security.h"

namespace headroom::coordinator {
namespace {

using std::chrono::milliseconds;

const std::string kToken = "0123456789abcdef";
const std::string kPeer = "ipv4:10.0.0.2:41234";

TEST(CallGuard, KnowsItsToken) {
  CallGuard guard(kToken);
  const TimePoint now;
  EXPECT_EQ(guard.admit(now, kPeer, kToken, "", true), std::nullopt);
  for (const std::string wrong :
       {"", "0123456789abcdeg", "0123456789abcde", "0123456789abcdef0"}) {
    EXPECT_EQ(guard.admit(now, kPeer, wrong, "", true),
              RefusalKind::kWrongToken)
        << wrong;
  }
}

TEST(CallGuard, WithoutATokenEveryCallIsAccepted) {
  CallGuard guard("");
  EXPECT_EQ(guard.admit(TimePoint(), kPeer, "", "", false), std::nullopt);
}

TEST(CallGuard, AFloodFromOneHostIsRefusedAndOtherHostsAreServed) {
  CallGuard guard("");
  const TimePoint now;
  int admitted = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string peer = "ipv4:10.0.0.2:" + std::to_string(1000 + i);
    admitted += guard.admit(now, peer, "", "", false) == std::nullopt ? 1 : 0;
  }
  EXPECT_EQ(admitted, static_cast<int>(CallGuard::kCallsPerSecond));
  EXPECT_EQ(guard.admit(now, "ipv4:10.0.0.3:1", "", "", false), std::nullopt);
  EXPECT_EQ(guard.admit(now + milliseconds(10), kPeer, "", "", false),
            std::nullopt);
}

TEST(CallGuard, CallsWithoutTheTokenUseUpNoMembersBudget) {
  CallGuard guard(kToken);
  const TimePoint now;
  for (int i = 0; i < 20000; ++i) {
    EXPECT_EQ(guard.admit(now, kPeer, "guess-" + std::to_string(i), "", true),
              RefusalKind::kWrongToken);
  }
  EXPECT_EQ(guard.admit(now, kPeer, kToken, "", true), std::nullopt);
}

TEST(CallGuard, AMemberHasABudgetOfItsOwn) {
  CallGuard guard(kToken);
  const TimePoint now;
  int admitted = 0;
  for (int i = 0; i < 5000; ++i) {
    if (!guard.admit(now, kPeer, kToken, "", true)) ++admitted;
  }
  EXPECT_EQ(admitted, static_cast<int>(CallGuard::kJoinsAtOnce));
  EXPECT_EQ(guard.admit(now, kPeer, kToken, "", true),
            RefusalKind::kTooManyJoins);
  EXPECT_EQ(guard.admit(now, kPeer, kToken, "node-1", true), std::nullopt);
  for (int i = 0; i < 20000; ++i)
    guard.admit(now, kPeer, kToken, "node-2", false);
  EXPECT_EQ(guard.admit(now, kPeer, kToken, "node-2", false),
            RefusalKind::kTooManyCalls);
  EXPECT_EQ(guard.admit(now, kPeer, kToken, "node-1", false), std::nullopt);
}

TEST(CallGuard, RemembersABoundedNumberOfHosts) {
  CallGuard guard("");
  const TimePoint now;
  for (int i = 0; i < 100000; ++i) {
    guard.admit(now, "ipv4:" + std::to_string(i) + ":1", "", "", false);
  }
  EXPECT_EQ(guard.admit(now, kPeer, "", "", false), std::nullopt);
}

TEST(CallGuard, CountsRefusalsAndLogsOneASecond) {
  CallGuard guard("");
  const TimePoint now;
  EXPECT_TRUE(guard.refuse(now, "stale"));
  EXPECT_FALSE(guard.refuse(now + milliseconds(500), "stale"));
  EXPECT_TRUE(guard.refuse(now + milliseconds(500), "wrong join token"));
  EXPECT_TRUE(guard.refuse(now + milliseconds(1000), "stale"));
  EXPECT_EQ(guard.refused().at("stale"), 3);
}

TEST(CallGuard, AHostIsAPeerWithoutItsPort) {
  EXPECT_EQ(host_of_peer("ipv4:10.0.0.2:41234"), "ipv4:10.0.0.2");
  EXPECT_EQ(host_of_peer("ipv6:%5B::1%5D:41234"), "ipv6:%5B::1%5D");
  EXPECT_EQ(host_of_peer("unix"), "unix");
}

TEST(EqualSecrets, ComparesAllOfThem) {
  EXPECT_TRUE(wire::equal_secrets("abc", "abc"));
  EXPECT_TRUE(wire::equal_secrets("", ""));
  for (const std::string other : {"abd", "xbc", "ab", "abcd", ""}) {
    EXPECT_FALSE(wire::equal_secrets(other, "abc")) << other;
  }
}

}  // namespace
}  // namespace headroom::coordinator
