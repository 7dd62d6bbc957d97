#include "coordinator/run/membership.h"

#include <gtest/gtest.h>

#include "tests/coordinator/run/moments.h"

namespace headroom::coordinator {
namespace {

using std::chrono::milliseconds;

Node node_of(const std::string& node_id, std::vector<std::string> workers,
             int launcher_rank = 0) {
  Node node;
  node.node_id = node_id;
  node.hostname = "host-" + node_id;
  node.launcher_rank = launcher_rank;
  node.worker_ids = std::move(workers);
  return node;
}

Membership four() { return Membership(4); }

TEST(Membership, ANodeBringsItsWorkersInTheirOrder) {
  Membership membership = four();
  EXPECT_EQ(membership.register_node(at(0), node_of("n", {"a", "b"}, 7)),
            std::nullopt);
  ASSERT_EQ(membership.members().size(), 2u);
  const Member& b = membership.members()[1];
  EXPECT_EQ(b.worker_id, "b");
  EXPECT_EQ(b.node_id, "n");
  EXPECT_EQ(b.hostname, "host-n");
  EXPECT_EQ(b.launcher_rank, 7);
  EXPECT_EQ(b.local_slot, 1);
  EXPECT_EQ(b.state, MemberState::kExpected);
}

TEST(Membership, WithoutAHostnameAnAgentIsAMachineOfItsOwn) {
  Membership membership = four();
  Node node = node_of("n", {"a"});
  node.hostname = "";
  membership.register_node(at(0), node);
  EXPECT_EQ(membership.find("a")->hostname, "n");
}

TEST(Membership, TheSameRegistrationTwiceIsOne) {
  Membership membership = four();
  membership.register_node(at(0), node_of("n", {"a", "b"}));
  EXPECT_EQ(membership.register_node(at(1), node_of("n", {"a", "b"})),
            std::nullopt);
  EXPECT_EQ(membership.members().size(), 2u);
  EXPECT_EQ(membership.register_node(at(1), node_of("n", {"a", "c"})),
            "worker b has not left, c cannot take its place");
  EXPECT_EQ(membership.register_node(at(1), node_of("n", {"a", "b", "c"})),
            "node n is registered already, with 2 other workers");
}

TEST(Membership, ASuccessorTakesTheSlotOfALostAgent) {
  Membership membership(2);
  Node node{"n", "h", 0, {"a", "b"}, {}};
  EXPECT_EQ(membership.register_node(at(0), node), std::nullopt);
  membership.join(at(0), "a", "n");
  membership.join(at(0), "b", "n");
  node.worker_ids = {"a", "b.1"};
  EXPECT_EQ(membership.register_node(at(1), node),
            "worker b has not left, b.1 cannot take its place");
  membership.leave("b");
  node.worker_ids = {"a", "a"};
  EXPECT_EQ(membership.register_node(at(1), node),
            "worker a is registered already");
  node.worker_ids = {"a", "b.1"};
  EXPECT_EQ(membership.register_node(at(1), node), std::nullopt);
  EXPECT_EQ(membership.register_node(at(1), node), std::nullopt);
  EXPECT_EQ(membership.find("b"), nullptr);
  EXPECT_EQ(membership.members().size(), 2u);
  EXPECT_EQ(membership.find("b.1")->state, MemberState::kExpected);
  EXPECT_EQ(membership.find("b.1")->local_slot, 1);
  EXPECT_EQ(membership.join(at(2), "b.1", "n"), std::nullopt);
}

TEST(Membership, OnceOpenTheRunMayGrow) {
  Membership membership(1);
  EXPECT_EQ(membership.register_node(at(0), {"n", "h", 0, {"a"}, {}}),
            std::nullopt);
  EXPECT_NE(membership.register_node(at(0), {"m", "h", 0, {"b"}, {}}),
            std::nullopt);
  membership.open();
  EXPECT_EQ(membership.register_node(at(0), {"m", "h", 0, {"b"}, {}}),
            std::nullopt);
}

TEST(Membership, MoreWorkersThanExpectedAreRefusedWithAllNumbers) {
  Membership membership = four();
  membership.register_node(at(0), node_of("n", {"a", "b", "c"}));
  EXPECT_EQ(membership.register_node(at(0), node_of("m", {"d", "e"})),
            "node m offers 2 workers, but 3 of this run's 4 are "
            "registered");
  EXPECT_EQ(membership.members().size(), 3u);
  EXPECT_EQ(membership.nodes().size(), 1u);
}

TEST(Membership, AWorkerIdIsUnique) {
  Membership membership = four();
  membership.register_node(at(0), node_of("n", {"a"}));
  EXPECT_EQ(membership.register_node(at(0), node_of("m", {"b", "a"})),
            "worker a is registered already");
  EXPECT_EQ(membership.register_node(at(0), node_of("m", {"b", "b"})),
            "worker b is registered already");
  EXPECT_EQ(membership.find("b"), nullptr);
}

TEST(Membership, NamesThatWouldSpoilALineAreRefused) {
  Membership membership = four();
  EXPECT_EQ(membership.register_node(at(0), node_of("", {"a"})),
            "node_id is empty");
  EXPECT_EQ(membership.register_node(at(0), node_of("n", {"a\nb"})),
            "worker_id holds blanks or unprintable characters");
  EXPECT_EQ(
      membership.register_node(at(0), node_of("n", {std::string(201, 'a')})),
      "worker_id has 201 characters, more than 200");
  EXPECT_TRUE(membership.members().empty());
}

TEST(Membership, AWorkerJoinsOnceUnderItsNode) {
  Membership membership = four();
  membership.register_node(at(0), node_of("n", {"a"}));
  EXPECT_EQ(membership.join(at(1), "z", "n"),
            "worker z belongs to no registered node");
  EXPECT_EQ(membership.join(at(1), "a", "m"),
            "worker a belongs to node n, not to m");
  EXPECT_EQ(membership.join(at(1), "a", "n"), std::nullopt);
  EXPECT_EQ(membership.find("a")->state, MemberState::kJoined);
  EXPECT_EQ(membership.join(at(2), "a", "n"), "worker a has joined already");
  EXPECT_TRUE(membership.leave("a"));
  EXPECT_FALSE(membership.leave("a"));
  EXPECT_EQ(membership.join(at(3), "a", "n"), "worker a has left the run");
}

TEST(Membership, OnlyTheJoinedAndTheRegisteredHaveAHeartbeat) {
  Membership membership = four();
  membership.register_node(at(0), node_of("n", {"a"}));
  EXPECT_FALSE(membership.heartbeat_worker(at(1), "a"));
  membership.join(at(1), "a", "n");
  EXPECT_TRUE(membership.heartbeat_worker(at(2), "a"));
  EXPECT_FALSE(membership.heartbeat_worker(at(2), "z"));
  membership.leave("a");
  EXPECT_FALSE(membership.heartbeat_worker(at(3), "a"));
  EXPECT_TRUE(membership.heartbeat_node(at(3), "n"));
  EXPECT_FALSE(membership.heartbeat_node(at(3), "m"));
}

std::string ids(const std::vector<SilentProcess>& silent) {
  std::string text;
  for (const SilentProcess& one : silent) {
    text += (text.empty() ? "" : ", ") + one.id + " " + one.how_long;
  }
  return text;
}

TEST(Membership, ExactlyTheTimeoutIsNotYetSilence) {
  Membership membership = four();
  membership.register_node(at(0), node_of("n", {"a", "b"}));
  membership.join(at(100), "a", "n");
  for (int ms = 250; ms <= 5000; ms += 250) {
    membership.heartbeat_node(at(ms), "n");
    if (ms != 2000) continue;
    EXPECT_EQ(ids(membership.expire(at(2100)).workers), "");
    const Expired expired = membership.expire(at(2101));
    EXPECT_EQ(ids(expired.workers), "a for 2000 ms");
    EXPECT_EQ(ids(expired.nodes), "");
  }
  EXPECT_EQ(membership.find("a")->state, MemberState::kGone);
  EXPECT_EQ(membership.find("b")->state, MemberState::kExpected);
  EXPECT_EQ(ids(membership.expire(at(5000)).workers), "");
}

TEST(Membership, ASilentNodeIsReportedOnceAndMayReturn) {
  Membership membership = four();
  membership.register_node(at(0), node_of("n", {"a"}));
  EXPECT_EQ(ids(membership.expire(at(5000)).nodes), "");
  EXPECT_EQ(ids(membership.expire(at(5001)).nodes),
            "n for 5000 ms, with its whole node");
  EXPECT_EQ(ids(membership.expire(at(5002)).nodes), "");
  EXPECT_TRUE(membership.find_node("n")->silent);
  membership.heartbeat_node(at(6000), "n");
  EXPECT_FALSE(membership.find_node("n")->silent);
  EXPECT_EQ(membership.expire(at(11001)).nodes.size(), 1u);
}

TEST(Membership, ASilentAgentWhoseWorkersSendMessagesWasStopped) {
  Membership membership = four();
  membership.register_node(at(0), node_of("n", {"a"}));
  membership.join(at(0), "a", "n");
  for (int ms = 250; ms <= 2000; ms += 250) {
    membership.heartbeat_worker(at(ms), "a");
  }
  EXPECT_EQ(ids(membership.expire(at(2001)).nodes), "n for 2000 ms");
}

// Node n sends a message every 250 ms until `end`, except during the pause.
// Each message contains the time since the last message of worker a. Worker a
// sends one every 250 ms until `last`.
Membership reported_until(int last, int end, int pause_begin = 0,
                          int pause_end = 0) {
  Membership membership = four();
  membership.register_node(at(0), node_of("n", {"a"}));
  membership.join(at(0), "a", "n");
  for (int ms = 250; ms <= end; ms += 250) {
    if (ms > pause_begin && ms < pause_end) continue;
    membership.heartbeat_node(at(ms), "n");
    membership.heartbeat_worker(at(ms), "a",
                                milliseconds(std::max(0, ms - last)));
  }
  return membership;
}

TEST(Membership, AWorkerIsSilentOnceItsAgentHasReceivedNothingForTheLimit) {
  EXPECT_EQ(ids(reported_until(1000, 3000).expire(at(3000)).workers), "");
  const Expired expired = reported_until(1000, 3250).expire(at(3250));
  EXPECT_EQ(ids(expired.workers), "a for 2000 ms");
  EXPECT_EQ(ids(expired.nodes), "");
}

// Worker a is not silent before its node is, because the agent's next report
// may say that the worker is alive.
TEST(Membership, LateReportsOfAnAgentDoNotMakeItsWorkersSilent) {
  Membership membership = reported_until(3000, 3000);
  EXPECT_EQ(ids(membership.expire(at(8000)).workers), "");
  const Expired expired = membership.expire(at(8001));
  EXPECT_EQ(ids(expired.workers), "a for 5000 ms, with its whole node");
  EXPECT_EQ(ids(expired.nodes), "n for 5000 ms, with its whole node");
}

// The whole machine was stopped. Afterwards the agent sends its message shortly
// before its worker does.
TEST(Membership, AfterAStallAReportedWorkerHasTheStallsLengthToSendAgain) {
  Membership membership = reported_until(2000, 5000, 2000, 5000);
  EXPECT_EQ(ids(membership.expire(at(5000)).workers), "");
}

TEST(Membership, AWorkersOwnMessageCountsBeforeAnOlderAgeFromItsAgent) {
  Membership membership = four();
  membership.register_node(at(0), node_of("n", {"a"}));
  membership.join(at(0), "a", "n");
  membership.heartbeat_worker(at(6000), "a");
  membership.heartbeat_node(at(6100), "n");
  membership.heartbeat_worker(at(6100), "a", milliseconds(6000));
  EXPECT_EQ(ids(membership.expire(at(6100)).workers), "");
  EXPECT_EQ(membership.find("a")->last_seen, at(6000));
}

TEST(Membership, APauseOfTheCoordinatorMakesNoMemberSilent) {
  Membership membership = four();
  membership.register_node(at(0), node_of("n", {"a"}));
  membership.join(at(0), "a", "n");
  membership.excuse(milliseconds(60000));
  const Expired excused = membership.expire(at(61000));
  EXPECT_EQ(ids(excused.workers), "");
  EXPECT_EQ(ids(excused.nodes), "");
  EXPECT_EQ(membership.expire(at(65001)).workers.size(), 1u);
}

TEST(Membership, NamesAreFoundAfterEveryChange) {
  Membership membership(4);
  membership.register_node(at(0), node_of("n", {"a", "b"}));
  membership.register_node(at(0), node_of("m", {"c"}));
  membership.join(at(0), "c", "m");
  membership.heartbeat_worker(at(5000), "c");
  membership.expire(at(5001));
  membership.leave_absent("n");
  EXPECT_EQ(membership.register_node(at(5002), node_of("o", {"d", "e", "f"})),
            std::nullopt)
      << "in the place of n";
  EXPECT_EQ(membership.find("a"), nullptr);
  membership.leave("e");
  membership.register_node(at(5003), node_of("o", {"d", "e.1", "f"}));
  EXPECT_EQ(membership.find("e"), nullptr);
  ASSERT_EQ(membership.members().size(), 4u);
  for (const Member& member : membership.members()) {
    EXPECT_EQ(membership.find(member.worker_id), &member);
  }
  for (const Node& node : membership.nodes()) {
    EXPECT_EQ(membership.find_node(node.node_id), &node);
  }
}

TEST(Membership, NodesWithoutWorkersAreFew) {
  Membership membership(1);
  int taken = 0;
  Node node;
  for (int i = 0; i < 200; ++i) {
    node.node_id = "n" + std::to_string(i);
    taken += membership.register_node(at(0), node) ? 0 : 1;
  }
  EXPECT_EQ(taken, 64);
  node.node_id = "useful";
  node.worker_ids = {"w"};
  EXPECT_EQ(membership.register_node(at(0), node), std::nullopt);
}

}  // namespace
}  // namespace headroom::coordinator
