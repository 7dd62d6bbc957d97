#include "coordinator/service/refusals.h"

#include <gtest/gtest.h>

#include <chrono>

#include "proto/channel_security.h"

namespace headroom::coordinator {
namespace {

using std::chrono::milliseconds;

TEST(Refusals, AreCountedAndLoggedOnceASecond) {
  Refusals refusals;
  const TimePoint now;
  EXPECT_TRUE(refusals.add(now, "stale"));
  EXPECT_FALSE(refusals.add(now + milliseconds(500), "stale"));
  EXPECT_TRUE(refusals.add(now + milliseconds(500), "wrong join token"));
  EXPECT_TRUE(refusals.add(now + milliseconds(1000), "stale"));
  EXPECT_EQ(refusals.counts().at("stale"), 3);
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
