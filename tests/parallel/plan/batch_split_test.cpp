#include "parallel/plan/batch_split.h"

#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom {
namespace {

// Do `ranges` follow on each other without a gap from `begin` to `end`?
void expect_tiles(const std::vector<SampleRange>& ranges, int64_t begin,
                  int64_t end) {
  int64_t next = begin;
  for (const SampleRange& range : ranges) {
    EXPECT_EQ(range.begin, next);
    EXPECT_GE(range.end, range.begin);
    next = range.end;
  }
  EXPECT_EQ(next, end);
}

TEST(BatchSplit, SharesTileTheBatchAndDifferByAtMostOne) {
  for (int64_t count = 0; count <= 40; ++count) {
    for (int parts = 1; parts <= 12; ++parts) {
      std::vector<SampleRange> shares;
      for (int index = 0; index < parts; ++index) {
        shares.push_back(share_of(count, parts, index));
        EXPECT_EQ(shares.back().size(),
                  count / parts + (index < count % parts ? 1 : 0));
      }
      expect_tiles(shares, 0, count);
    }
  }
}

TEST(BatchSplit, SharesByHand) {
  EXPECT_EQ(share_of(7, 3, 0), (SampleRange{0, 3}));
  EXPECT_EQ(share_of(7, 3, 1), (SampleRange{3, 5}));
  EXPECT_EQ(share_of(7, 3, 2), (SampleRange{5, 7}));
  EXPECT_EQ(share_of(1, 2, 1), (SampleRange{1, 1}));
  EXPECT_THROW(share_of(7, 3, 3), CheckFailure);
  EXPECT_THROW(share_of(-1, 3, 0), CheckFailure);
}

TEST(BatchSplit, DefaultGroupIsTheLargestDivisorUpTo16) {
  for (int64_t batch = 1; batch <= 200; ++batch) {
    int64_t largest = 0;
    for (int64_t group = 1; group <= 16; ++group) {
      if (batch % group == 0) largest = group;
    }
    EXPECT_EQ(default_batch_norm_group_size(batch), largest) << batch;
  }
  EXPECT_EQ(default_batch_norm_group_size(64), 16);
  EXPECT_EQ(default_batch_norm_group_size(24), 12);
  EXPECT_EQ(default_batch_norm_group_size(17), 1);
}

TEST(BatchSplit, GroupsTileTheBatch) {
  for (int64_t count = 1; count <= 40; ++count) {
    for (int64_t group = 1; group <= 20; ++group) {
      for (const int64_t elements : {1, 2, 100}) {
        const auto groups = batch_norm_groups(count, group, elements);
        expect_tiles(groups, 0, count);
        for (size_t i = 0; i + 1 < groups.size(); ++i) {
          EXPECT_EQ(groups[i].size(), group);
        }
        // Variance needs two values per channel, where the batch has them.
        if (count * elements >= 2 && group * elements >= 2) {
          for (const SampleRange& range : groups) {
            EXPECT_GE(range.size() * elements, 2)
                << count << " / " << group << ", map " << elements;
          }
        }
      }
    }
  }
}

TEST(BatchSplit, ARemainderWithOneValueJoinsTheGroupBefore) {
  using Groups = std::vector<SampleRange>;
  EXPECT_EQ(batch_norm_groups(9, 4, 1), (Groups{{0, 4}, {4, 9}}));
  EXPECT_EQ(batch_norm_groups(9, 4, 2), (Groups{{0, 4}, {4, 8}, {8, 9}}));
  EXPECT_EQ(batch_norm_groups(10, 4, 1), (Groups{{0, 4}, {4, 8}, {8, 10}}));
  EXPECT_EQ(batch_norm_groups(1, 4, 1), (Groups{{0, 1}}));
  EXPECT_EQ(batch_norm_groups(3, 16, 1), (Groups{{0, 3}}));
  EXPECT_EQ(batch_norm_groups(0, 4, 1), Groups{});
}

TEST(BatchSplit, MicroBatchesTileTheShare) {
  for (int64_t size = 0; size <= 20; ++size) {
    for (int64_t micro = 1; micro <= 22; ++micro) {
      const SampleRange local{5, 5 + size};
      const auto parts = micro_batches(local, micro);
      expect_tiles(parts, local.begin, local.end);
      EXPECT_EQ(static_cast<int64_t>(parts.size()),
                std::max<int64_t>(1, (size + micro - 1) / micro));
      for (const SampleRange& part : parts) EXPECT_LE(part.size(), micro);
    }
  }
}

// Whether every group lies in one micro-batch of one rank, or every rank's
// share is one micro-batch, by looking at the samples one by one.
bool groups_fit(int64_t batch, int ranks, int64_t micro, int64_t group) {
  bool whole_shares = true;
  bool whole_groups = true;
  for (int rank = 0; rank < ranks; ++rank) {
    const SampleRange local = share_of(batch, ranks, rank);
    const auto parts = micro_batches(local, micro);
    whole_shares = whole_shares && parts.size() == 1;
    for (const SampleRange& part : parts) {
      whole_groups = whole_groups && part.begin % group == 0 &&
                     (part.end % group == 0 || part.end == batch);
    }
  }
  return whole_shares || whole_groups;
}

TEST(BatchSplit, GroupsFitOnlyWhereTheSamplesSaySo) {
  int fitting = 0;
  for (int64_t batch = 1; batch <= 24; ++batch) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (int64_t micro = 1; micro <= 12; ++micro) {
        for (int64_t group = 1; group <= batch; ++group) {
          const bool fits =
              !why_groups_do_not_fit(batch, ranks, micro, group).has_value();
          fitting += fits ? 1 : 0;
          // Never accepted wrongly.
          if (fits) {
            EXPECT_TRUE(groups_fit(batch, ranks, micro, group))
                << batch << " images, " << ranks << " ranks, micro " << micro
                << ", group " << group;
          }
          // Never refused where shares and groups divide evenly.
          const bool even = batch % ranks == 0 && batch / ranks % group == 0;
          if (even && micro % group == 0) {
            EXPECT_TRUE(fits);
          }
        }
      }
    }
  }
  EXPECT_GT(fitting, 1000);
}

TEST(BatchSplit, TheRefusalSaysTheEquation) {
  EXPECT_EQ(why_groups_do_not_fit(16, 2, 2, 4),
            "micro_batch_size 2 is neither a multiple of batch_norm_group_size "
            "4 with whole groups per rank (16 images / 2 ranks), nor a rank's "
            "whole share of 8");
  EXPECT_EQ(why_groups_do_not_fit(16, 2, 8, 16), std::nullopt);
  EXPECT_EQ(why_groups_do_not_fit(16, 2, 4, 4), std::nullopt);
}

}  // namespace
}  // namespace headroom
