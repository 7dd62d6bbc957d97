#include "worker/step/parallel_context.h"

#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::step {
namespace {

constexpr int64_t kManyCells = 100;

GroupRequest request(int64_t count, int ranks, int64_t micro, int64_t group) {
  return {{count, ranks, micro, group}, count, kManyCells};
}

TEST(StepGroups, ARankListsItsOwnGroups) {
  const StepGroups groups = groups_of(request(32, 2, 16, 16), {16, 32});
  EXPECT_EQ(groups.first, 1);
  ASSERT_EQ(groups.groups.size(), 1u);
  EXPECT_EQ(groups.groups[0].local_begin, 0);
  EXPECT_EQ(groups.groups[0].local_end, 16);
  EXPECT_EQ(groups.groups[0].global_samples, 16);
  EXPECT_TRUE(groups.groups[0].counts_here);
}

TEST(StepGroups, MicroBatchSeesItsOwnGroupsOnly) {
  const StepGroups groups = groups_of(request(64, 2, 16, 8), {32, 48});
  EXPECT_EQ(groups.first, 4);
  ASSERT_EQ(groups.groups.size(), 2u);
  EXPECT_EQ(groups.groups[1].local_begin, 8);
  EXPECT_EQ(groups.groups[1].local_end, 16);
}

TEST(StepGroups, AGroupThatSpansRanksIsListedOnEachOfThem) {
  // 16 images on 3 ranks: shares 6, 5, 5 of one group.
  const GroupRequest shared = request(16, 3, 16, 16);
  const StepGroups first = groups_of(shared, {0, 6});
  const StepGroups second = groups_of(shared, {6, 11});
  ASSERT_EQ(second.groups.size(), 1u);
  EXPECT_EQ(second.groups[0].local_begin, 0);
  EXPECT_EQ(second.groups[0].local_end, 5);
  EXPECT_EQ(second.groups[0].global_samples, 16);
  EXPECT_TRUE(first.groups[0].counts_here);
  EXPECT_FALSE(second.groups[0].counts_here);
}

TEST(StepGroups, ARankWithoutSamplesListsNone) {
  // 3 images on 4 ranks; the last has none.
  EXPECT_TRUE(groups_of(request(3, 4, 3, 16), {3, 3}).groups.empty());
}

TEST(StepGroups, EveryGroupIsCountedByExactlyOneRank) {
  for (int64_t count = 1; count <= 40; ++count) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      const GroupRequest whole = request(count, ranks, count, 8);
      size_t counted = 0;
      int64_t samples = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const StepGroups groups =
            groups_of(whole, plan::share_of(count, ranks, rank));
        int64_t place = 0;
        for (const BatchNormGroup& group : groups.groups) {
          EXPECT_EQ(group.local_begin, place) << count << " on " << ranks;
          place = group.local_end;
          counted += group.counts_here ? 1 : 0;
          samples += group.local_end - group.local_begin;
        }
      }
      EXPECT_EQ(counted, plan::batch_norm_groups(count, {8}, kManyCells).size())
          << count << " on " << ranks;
      EXPECT_EQ(samples, count);
    }
  }
}

}  // namespace
}  // namespace headroom::step
