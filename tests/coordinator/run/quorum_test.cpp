#include "coordinator/run/quorum.h"

#include <gtest/gtest.h>

#include "tests/coordinator/run/moments.h"

namespace headroom::coordinator {
namespace {

using std::chrono::milliseconds;

Member member(const std::string& worker_id, MemberState state) {
  Member entry;
  entry.worker_id = worker_id;
  entry.hostname = "h";
  entry.state = state;
  return entry;
}

QuorumOptions options(int expected_workers) {
  QuorumOptions options;
  options.expected_workers = expected_workers;
  options.join_timeout = milliseconds(60000);
  return options;
}

TEST(Quorum, AllMembersHaveJoined) {
  const QuorumDecision decision = decide_quorum(
      at(5), at(0),
      {member("a", MemberState::kJoined), member("b", MemberState::kJoined)},
      options(2));
  ASSERT_EQ(decision.members.size(), 2u);
  EXPECT_EQ(decision.members[1].worker_id, "b");
  EXPECT_EQ(decision.reason, "all 2 workers have joined");
  EXPECT_FALSE(decision.timed_out);
}

TEST(Quorum, TheMissingAreNamed) {
  const QuorumDecision decision = decide_quorum(
      at(5), at(0),
      {member("a", MemberState::kJoined), member("b", MemberState::kExpected)},
      options(2));
  EXPECT_TRUE(decision.members.empty());
  EXPECT_EQ(decision.reason, "1 of 2 workers have joined; missing: b on h");
}

TEST(Quorum, SlotsWithoutAnAgentAreCounted) {
  const QuorumDecision decision = decide_quorum(
      at(5), at(0), {member("a", MemberState::kExpected)}, options(4));
  EXPECT_EQ(decision.reason,
            "0 of 4 workers have joined; missing: a on h; 3 have no agent "
            "yet");
}

TEST(Quorum, ALongListIsCutShort) {
  std::vector<Member> members;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    members.push_back(member(name, MemberState::kExpected));
  }
  EXPECT_EQ(decide_quorum(at(5), at(0), members, options(5)).reason,
            "0 of 5 workers have joined; missing: a on h, b on h, c on h and "
            "2 more");
}

TEST(Quorum, AMemberThatLeftIsMissing) {
  const QuorumDecision decision = decide_quorum(
      at(5), at(0), {member("a", MemberState::kGone)}, options(1));
  EXPECT_TRUE(decision.members.empty());
  EXPECT_EQ(decision.reason, "0 of 1 workers have joined; missing: a on h");
}

TEST(Quorum, TheWaitingEndsAfterTheTimeoutAndNotAtIt) {
  const std::vector<Member> members = {member("a", MemberState::kExpected)};
  EXPECT_FALSE(
      decide_quorum(at(61000), at(1000), members, options(1)).timed_out);
  const QuorumDecision late =
      decide_quorum(at(61001), at(1000), members, options(1));
  EXPECT_TRUE(late.timed_out);
  EXPECT_EQ(late.reason,
            "0 of 1 workers have joined; missing: a on h; gave up after 60 s");
}

TEST(Quorum, AQuorumAtTheLastMomentCounts) {
  const QuorumDecision decision = decide_quorum(
      at(99999), at(0), {member("a", MemberState::kJoined)}, options(1));
  EXPECT_EQ(decision.members.size(), 1u);
  EXPECT_FALSE(decision.timed_out);
}

}  // namespace
}  // namespace headroom::coordinator
