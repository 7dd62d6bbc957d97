#include "coordinator/run/quorum.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headroom::coordinator {
namespace {

Member joined_member(const std::string& worker_id, const std::string& hostname,
                     int launcher_rank, int local_slot,
                     const std::string& node_id = "") {
  Member entry;
  entry.worker_id = worker_id;
  entry.node_id = node_id.empty() ? hostname : node_id;
  entry.hostname = hostname;
  entry.launcher_rank = launcher_rank;
  entry.local_slot = local_slot;
  return entry;
}

RankedMember ranked(const std::string& worker_id, int rank, int local_rank,
                    int local_world_size) {
  RankedMember entry;
  entry.worker_id = worker_id;
  entry.rank = rank;
  entry.local_rank = local_rank;
  entry.local_world_size = local_world_size;
  return entry;
}

TEST(RankAssignment, TheTableOfTheHeader) {
  EXPECT_EQ(
      assign_ranks(
          {joined_member("b0", "b", 1, 0), joined_member("a2", "a", 2, 0, "a'"),
           joined_member("a1", "a", 0, 1), joined_member("a0", "a", 0, 0)}),
      (std::vector<RankedMember>{ranked("a0", 0, 0, 3), ranked("a1", 1, 1, 3),
                                 ranked("a2", 2, 2, 3),
                                 ranked("b0", 3, 0, 1)}));
}

TEST(RankAssignment, TheOrderOfJoiningDoesNotMatter) {
  std::vector<Member> members = {
      joined_member("a", "x", 0, 0), joined_member("b", "x", 0, 1),
      joined_member("c", "y", 1, 0), joined_member("d", "y", 1, 1)};
  const std::vector<RankedMember> expected = assign_ranks(members);
  const auto before = [](const Member& a, const Member& b) {
    return a.worker_id < b.worker_id;
  };
  while (std::next_permutation(members.begin(), members.end(), before)) {
    EXPECT_EQ(assign_ranks(members), expected);
  }
}

TEST(RankAssignment, AWorkerKeepsItsPlaceWhereOthersOfItsMachineAreLost) {
  const Member a0 = joined_member("a0", "a", 0, 0);
  const Member a1 = joined_member("a1", "a", 0, 1);
  const Member a2 = joined_member("a2", "a", 0, 2);
  EXPECT_EQ(assign_ranks({a2, a1}, {a2, a0, a1}),
            (std::vector<RankedMember>{ranked("a1", 0, 1, 2),
                                       ranked("a2", 1, 2, 2)}));
}

TEST(RankAssignment, OneAgentPerSlotOnOneMachineGetsDevicesInLauncherOrder) {
  // mpirun -np 3 on one machine: three agents with one worker each.
  EXPECT_EQ(
      assign_ranks({joined_member("w2", "h", 2, 0, "n2"),
                    joined_member("w0", "h", 0, 0, "n0"),
                    joined_member("w1", "h", 1, 0, "n1")}),
      (std::vector<RankedMember>{ranked("w0", 0, 0, 3), ranked("w1", 1, 1, 3),
                                 ranked("w2", 2, 2, 3)}));
}

TEST(RankAssignment, MappedByNodeNeighboursStillShareAMachine) {
  // mpirun --map-by node: launcher ranks alternate between the machines.
  EXPECT_EQ(assign_ranks({joined_member("w0", "p", 0, 0, "n0"),
                          joined_member("w1", "q", 1, 0, "n1"),
                          joined_member("w2", "p", 2, 0, "n2"),
                          joined_member("w3", "q", 3, 0, "n3")}),
            (std::vector<RankedMember>{
                ranked("w0", 0, 0, 2), ranked("w2", 1, 1, 2),
                ranked("w1", 2, 0, 2), ranked("w3", 3, 1, 2)}));
}

TEST(RankAssignment, EqualLauncherRanksAreOrderedByName) {
  EXPECT_EQ(assign_ranks({joined_member("w1", "b", 0, 0),
                          joined_member("w0", "a", 0, 0)}),
            (std::vector<RankedMember>{ranked("w0", 0, 0, 1),
                                       ranked("w1", 1, 0, 1)}));
}

TEST(RankAssignment, TheFirstHostComesFirstIfItTakesPart) {
  const Member a = joined_member("a", "alpha", 0, 0);
  const Member z = joined_member("z", "zeta", 0, 0);
  EXPECT_EQ(
      assign_ranks({a, z}, {a, z}, "zeta"),
      (std::vector<RankedMember>{ranked("z", 0, 0, 1), ranked("a", 1, 0, 1)}));
  EXPECT_EQ(assign_ranks({a}, {a, z}, "zeta"),
            (std::vector<RankedMember>{ranked("a", 0, 0, 1)}));
}

TEST(RankAssignment, NoMembersGetNoRanks) {
  EXPECT_TRUE(assign_ranks({}).empty());
}

}  // namespace
}  // namespace headroom::coordinator
