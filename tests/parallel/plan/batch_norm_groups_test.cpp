#include "parallel/plan/batch_norm_groups.h"

#include <gtest/gtest.h>

#include <cmath>

#include "parallel/plan/batch_split.h"

namespace headroom::plan {
namespace {

using Sizes = std::vector<int64_t>;

Sizes sizes_of(int64_t count, const BatchNormRule& rule, int64_t elements = 4) {
  Sizes sizes;
  for (const SampleRange& group : batch_norm_groups(count, rule, elements)) {
    sizes.push_back(group.size());
  }
  return sizes;
}

Sizes usual(int64_t batch) {
  return sizes_of(batch, usual_batch_norm_rule(batch));
}

TEST(BatchNormGroups, TheUsualOnesByHand) {
  EXPECT_EQ(usual(1), (Sizes{1}));
  EXPECT_EQ(usual(9), (Sizes{9}));
  EXPECT_EQ(usual(16), (Sizes{16}));
  EXPECT_EQ(usual(17), (Sizes{17}));
  EXPECT_EQ(usual(20), (Sizes{20}));
  EXPECT_EQ(usual(24), (Sizes{12, 12}));
  EXPECT_EQ(usual(34), (Sizes{17, 17}));
  EXPECT_EQ(usual(37), (Sizes{19, 18}));
  EXPECT_EQ(usual(38), (Sizes{19, 19}));
  EXPECT_EQ(usual(62), (Sizes{16, 16, 15, 15}));
  EXPECT_EQ(usual(64), (Sizes{16, 16, 16, 16}));
  EXPECT_EQ(usual(100), (Sizes{17, 17, 17, 17, 16, 16}));
}

TEST(BatchNormGroups, UsualSizesDifferByAtMostOneLargerFirst) {
  for (int64_t batch = 1; batch <= 600; ++batch) {
    const BatchNormRule rule = usual_batch_norm_rule(batch);
    for (const int64_t count : {batch, batch / 2 + 1, batch % 7 + 1}) {
      if (count > batch) continue;
      const auto groups = batch_norm_groups(count, rule, 4);
      const auto expected =
          std::max<int64_t>(1, std::llround(static_cast<double>(count) / 16));
      EXPECT_EQ(static_cast<int64_t>(groups.size()), expected) << count;
      int64_t next = 0;
      for (const SampleRange& group : groups) {
        EXPECT_EQ(group.begin, next);
        next = group.end;
        EXPECT_LE(group.size(), groups.front().size());
        EXPECT_GE(group.size(), groups.front().size() - 1);
      }
      for (size_t i = 1; i < groups.size(); ++i) {
        EXPECT_GE(groups[i - 1].size(), groups[i].size());
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(BatchNormGroups, MultiplesOf16HaveGroupsOf16) {
  for (int64_t batch = 16; batch <= 512; batch += 16) {
    EXPECT_EQ(usual(batch), sizes_of(batch, {16})) << batch;
  }
}

TEST(BatchNormGroups, AnEvenGroupHasTwoValuesWhereTheBatchHas) {
  EXPECT_EQ(sizes_of(5, {1, true}, 1), (Sizes{3, 2}));
  EXPECT_EQ(sizes_of(1, {1, true}, 1), (Sizes{1}));
  EXPECT_EQ(sizes_of(0, {16, true}), Sizes{});
}

TEST(BatchNormGroups, WordsAndTheLargest) {
  EXPECT_EQ(group_sizes_text(64, {16, true}), "16");
  EXPECT_EQ(group_sizes_text(37, {16, true}), "19 and 18");
  EXPECT_EQ(group_sizes_text(10, {4}), "4 and 2");
  EXPECT_EQ(largest_group(37, {16, true}), 19);
  EXPECT_EQ(largest_group(10, {4}), 4);
}

// If the even groups can be divided equally among the ranks, no group spans
// ranks.
TEST(BatchNormGroups, WholeSharesOfEvenGroups) {
  const auto spans = [](int64_t batch, int ranks) {
    const BatchNormRule rule = usual_batch_norm_rule(batch);
    const BatchCut cut{batch, ranks, largest_share(batch, ranks, rule), rule};
    return groups_span_ranks(cut, batch, 4);
  };
  EXPECT_FALSE(spans(37, 1));
  EXPECT_FALSE(spans(34, 2));
  EXPECT_FALSE(spans(37, 2));
  EXPECT_FALSE(spans(100, 2));
  EXPECT_FALSE(spans(100, 3));
  EXPECT_TRUE(spans(100, 4));
  EXPECT_TRUE(spans(17, 2));
  EXPECT_EQ(largest_share(100, 2, usual_batch_norm_rule(100)), 51);
  EXPECT_EQ(largest_share(100, 4, usual_batch_norm_rule(100)), 25);
}

// Checks the parts of every batch of a run: they cover the batch without
// overlap, all ranks have the same number of micro-batches, and micro-batches
// contain whole groups.
TEST(BatchNormGroups, PartsOfEvenGroups) {
  int compared = 0;
  for (const int64_t batch : {17, 20, 34, 37, 62, 100}) {
    const BatchNormRule rule = usual_batch_norm_rule(batch);
    for (const int ranks : {1, 2, 3, 5}) {
      const int64_t share = largest_share(batch, ranks, rule);
      for (const int64_t micro :
           {largest_group(batch, rule), share / 2, share}) {
        const BatchCut cut{batch, ranks, micro, rule};
        if (groups_error(cut)) continue;
        for (int64_t count = 1; count <= batch; ++count) {
          const auto groups = batch_norm_groups(count, rule, 4);
          const bool span = groups_span_ranks(cut, count, 4);
          const size_t rounds = part_of(cut, count, 4, 0).micro_batches.size();
          int64_t next = 0;
          for (int rank = 0; rank < ranks; ++rank) {
            const BatchPart part = part_of(cut, count, 4, rank);
            EXPECT_EQ(part.micro_batches.size(), rounds);
            EXPECT_EQ(part.local.begin, next);
            for (const SampleRange& range : part.micro_batches) {
              EXPECT_EQ(range.begin, next);
              next = range.end;
              ++compared;
              for (const SampleRange& group : groups) {
                const bool apart =
                    group.end <= range.begin || range.end <= group.begin;
                const bool whole =
                    range.begin <= group.begin && group.end <= range.end;
                EXPECT_TRUE(span || apart || whole) << batch << " " << count;
              }
            }
            EXPECT_EQ(next, part.local.end);
          }
          EXPECT_EQ(next, count);
        }
      }
    }
  }
  EXPECT_GT(compared, 5000);
}

TEST(BatchNormGroups, MicroBatchesHoldEvenGroups) {
  const BatchNormRule rule{16, true};
  using Ranges = std::vector<SampleRange>;
  EXPECT_EQ(part_of({100, 1, 34, rule}, 100, 4, 0).micro_batches,
            (Ranges{{0, 34}, {34, 68}, {68, 100}}));
  // The last batch of an epoch is one group.
  EXPECT_EQ(part_of({64, 1, 16, rule}, 23, 4, 0).micro_batches,
            (Ranges{{0, 23}}));
  EXPECT_EQ(smaller_micro_batches({100, 1, 100, rule}), (Sizes{34, 17}));
  EXPECT_EQ(groups_error({37, 1, 19, rule}), std::nullopt);
  EXPECT_EQ(groups_error({37, 1, 18, rule}),
            "micro_batch_size 18 is less than the largest batch-norm group of "
            "19 and than a rank's whole share of 37 (37 images / 1 rank)");
}

}  // namespace
}  // namespace headroom::plan
