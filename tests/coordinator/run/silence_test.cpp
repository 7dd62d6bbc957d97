#include "coordinator/run/silence.h"

#include <gtest/gtest.h>

#include "tests/coordinator/run/moments.h"

namespace headroom::coordinator {
namespace {

// A node that sends a message every 250 ms, but not from `begin` to `end`.
NodeVoice heard_until(int now, int begin, int end) {
  NodeVoice voice{.last_heard = at(0), .all_heard_from = at(0)};
  for (int ms = 0; ms <= now; ms += 250) {
    if (ms <= begin || ms >= end) voice.note(at(ms));
  }
  return voice;
}

std::string judged(int now, int last_seen, const NodeVoice& voice) {
  return silence_error(at(now), at(last_seen), voice, {}).value_or("");
}

TEST(Silence, ASingleSilentWorkerIsLostAfterTwoSeconds) {
  const NodeVoice voice = heard_until(9000, 9000, 9000);
  EXPECT_EQ(judged(9000, 7000, voice), "");
  EXPECT_EQ(judged(9000, 6999, voice), "for 2000 ms");
}

TEST(Silence, AWholeSilentNodeIsLostAfterFiveSeconds) {
  const NodeVoice voice = heard_until(9000, 4000, 10'000);
  EXPECT_EQ(judged(9000, 4000, voice), "");
  EXPECT_EQ(judged(9001, 4000, voice), "for 5000 ms, with its whole node");
  EXPECT_EQ(judged(6500, 4250, voice), "") << "nobody else is heard";
}

TEST(Silence, AfterAStallOthersHaveItsLengthMoreTime) {
  const NodeVoice voice = heard_until(9000, 4000, 6000);
  EXPECT_EQ(judged(8999, 4000, voice), "");
  EXPECT_EQ(judged(9001, 4000, voice), "for 5000 ms") << "others are heard";
  const NodeVoice short_stall = heard_until(7500, 4000, 5000);
  EXPECT_EQ(judged(8000, 4000, short_stall), "");
  EXPECT_EQ(judged(8001, 4000, short_stall), "for 2000 ms");
}

TEST(Silence, AClosedConnectionDoesNotReturnWithTheNextAttempt) {
  NodeVoice voice = heard_until(9000, 4000, 10'000);
  voice.has_hung_up = true;
  EXPECT_EQ(judged(6000, 4000, voice), "");
  EXPECT_EQ(judged(6001, 4000, voice), "for 2000 ms");
}

}  // namespace
}  // namespace headroom::coordinator
