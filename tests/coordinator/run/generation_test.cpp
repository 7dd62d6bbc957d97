#include "coordinator/run/regrouping.h"

#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::coordinator {
namespace {

std::vector<RankedMember> two_members() {
  std::vector<RankedMember> members(2);
  members[0].worker_id = "a";
  members[1].worker_id = "b";
  members[1].rank = 1;
  return members;
}

plan::Plan plan_for(int data) {
  plan::Plan plan;
  plan.layout.data_parallel_size = data;
  return plan;
}

TEST(Generation, TheNumberRisesByOneFromOne) {
  const Generation first =
      next_generation(Generation(), two_members(), plan_for(2), {}, "start");
  EXPECT_EQ(first.number, 1u);
  EXPECT_EQ(first.reason, "start");
  EXPECT_EQ(next_generation(first, two_members(), plan_for(2), {}, "").number,
            2u);
}

TEST(Generation, MembersAndPlanAgree) {
  EXPECT_THROW(
      next_generation(Generation(), two_members(), plan_for(3), {}, ""),
      CheckFailure);
}

TEST(Generation, FindsItsMembers) {
  const Generation generation =
      next_generation(Generation(), two_members(), plan_for(2), {}, "");
  EXPECT_EQ(generation.find("b")->rank, 1);
  EXPECT_EQ(generation.find("c"), nullptr);
}

TEST(StaleError, TheCurrentGenerationOfThisRunIsNot) {
  EXPECT_EQ(stamp_error(3, "abc", 3, "abc", false), std::nullopt);
  EXPECT_EQ(stamp_error(3, "abc", 3, "abc", true), std::nullopt);
}

TEST(StaleError, BothGenerationsAreNamedWhetherOlderOrNewer) {
  EXPECT_EQ(stamp_error(2, "abc", 3, "abc", false),
            "the message is of generation 2, the run is at generation 3");
  EXPECT_EQ(stamp_error(4, "abc", 3, "abc", true),
            "the message is of generation 4, the run is at generation 3");
}

TEST(StaleError, BothRunsAreNamed) {
  EXPECT_EQ(stamp_error(3, "xyz", 3, "abc", false),
            "the message is of run xyz, this coordinator serves run abc");
  EXPECT_EQ(stamp_error(0, "xyz", 3, "abc", true),
            "the message is of run xyz, this coordinator serves run abc");
  EXPECT_EQ(stamp_error(3, "", 3, "abc", false),
            "the message is of run (none), this coordinator serves run abc");
}

TEST(StaleError, AnUnknownGenerationIsAcceptedOnlyWhereAllowed) {
  EXPECT_NE(stamp_error(0, "", 3, "abc", true), std::nullopt);
  EXPECT_EQ(stamp_error(0, "abc", 3, "abc", true), std::nullopt);
  EXPECT_EQ(stamp_error(0, "abc", 3, "abc", false),
            "the message is of generation 0, the run is at generation 3");
}

}  // namespace
}  // namespace headroom::coordinator
