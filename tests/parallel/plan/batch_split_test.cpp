#include "parallel/plan/batch_split.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/base/check.h"

namespace headroom::plan {
namespace {

// Expects that `ranges` cover [begin, end) in order, without gap or overlap.
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

TEST(BatchSplit, GroupsTileTheBatch) {
  for (int64_t count = 1; count <= 40; ++count) {
    for (int64_t group = 1; group <= 20; ++group) {
      for (const int64_t elements : {1, 2, 100}) {
        const auto groups = batch_norm_groups(count, {group}, elements);
        expect_tiles(groups, 0, count);
        for (size_t i = 0; i + 1 < groups.size(); ++i) {
          EXPECT_EQ(groups[i].size(), group);
        }
        // The variance needs two values per channel, if the batch has that
        // many.
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
  EXPECT_EQ(batch_norm_groups(9, {4}, 1), (Groups{{0, 4}, {4, 9}}));
  EXPECT_EQ(batch_norm_groups(9, {4}, 2), (Groups{{0, 4}, {4, 8}, {8, 9}}));
  EXPECT_EQ(batch_norm_groups(10, {4}, 1), (Groups{{0, 4}, {4, 8}, {8, 10}}));
  EXPECT_EQ(batch_norm_groups(1, {4}, 1), (Groups{{0, 1}}));
  EXPECT_EQ(batch_norm_groups(3, {16}, 1), (Groups{{0, 3}}));
  EXPECT_EQ(batch_norm_groups(0, {4}, 1), Groups{});
}

// Checks all rules for the parts of one batch, for any cut.
void expect_parts(const BatchCut& cut, int64_t count, int64_t elements) {
  const auto groups = batch_norm_groups(count, cut.groups, elements);
  const bool span = groups_span_ranks(cut, count, elements);
  int64_t place = 0;
  const size_t num_micro_batches =
      part_of(cut, count, elements, 0).micro_batches.size();
  EXPECT_GE(num_micro_batches, 1u);
  for (int rank = 0; rank < cut.data_parallel_size; ++rank) {
    const BatchPart part = part_of(cut, count, elements, rank);
    EXPECT_EQ(part.local.begin, place);
    place = part.local.end;
    EXPECT_EQ(part.micro_batches.size(), num_micro_batches);
    int64_t inside = part.local.begin;
    for (const SampleRange& micro : part.micro_batches) {
      EXPECT_EQ(micro.begin, inside);
      inside = micro.end;
      // A micro-batch exceeds its size only if a remainder joined its last
      // group.
      EXPECT_LE(micro.size(), cut.micro_batch_size + cut.groups.size);
      if (span) continue;
      for (const SampleRange& group : groups) {
        const bool apart = group.end <= micro.begin || micro.end <= group.begin;
        const bool whole = micro.begin <= group.begin && group.end <= micro.end;
        EXPECT_TRUE(apart || whole || micro.size() == 0);
      }
    }
    EXPECT_EQ(inside, part.local.end);
  }
  EXPECT_EQ(place, count);
  if (span) {
    EXPECT_EQ(num_micro_batches, 1u);
  }
}

TEST(BatchSplit, PartsTileEveryBatchAndKeepGroupsTogether) {
  int admitted = 0, refused = 0;
  for (int64_t batch = 1; batch <= 12; ++batch) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (int64_t micro = 1; micro <= batch; ++micro) {
        for (int64_t group = 1; group <= batch; ++group) {
          const BatchCut cut{batch, ranks, micro, {group}};
          if (groups_error(cut)) {
            ++refused;
            continue;
          }
          ++admitted;
          for (int64_t count = 1; count <= batch; ++count) {
            for (const int64_t elements : {1, 2}) {
              expect_parts(cut, count, elements);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(admitted, 500);
  EXPECT_GT(refused, 500);
}

TEST(BatchSplit, SmallMicroBatchesGiveRanksWholeGroups) {
  // 13 images in groups of 4: [0,4) [4,8) [8,12) [12,13) over two ranks.
  const BatchCut cut{16, 2, 4, 4};
  using Ranges = std::vector<SampleRange>;
  EXPECT_EQ(part_of(cut, 13, 100, 0).micro_batches, (Ranges{{0, 4}, {4, 8}}));
  EXPECT_EQ(part_of(cut, 13, 100, 1).micro_batches,
            (Ranges{{8, 12}, {12, 13}}));
  // There are only three groups, so the second rank gets an empty micro-batch.
  EXPECT_EQ(part_of(cut, 12, 100, 1).micro_batches,
            (Ranges{{8, 12}, {12, 12}}));
  EXPECT_FALSE(groups_span_ranks(cut, 13, 100));
}

TEST(BatchSplit, WholeSharesMayCutGroups) {
  const BatchCut cut{16, 2, 8, 16};
  using Ranges = std::vector<SampleRange>;
  EXPECT_EQ(part_of(cut, 16, 100, 1).micro_batches, (Ranges{{8, 16}}));
  EXPECT_EQ(part_of(cut, 13, 100, 1).micro_batches, (Ranges{{7, 13}}));
  EXPECT_TRUE(groups_span_ranks(cut, 13, 100));
}

TEST(BatchSplit, TheRefusalShowsTheEquation) {
  EXPECT_EQ(groups_error({16, 2, 2, 4}),
            "micro_batch_size 2 is neither a multiple of batch_norm_group_size "
            "4 nor a rank's whole share of 8 (16 images / 2 ranks)");
  EXPECT_EQ(groups_error({16, 2, 8, 16}), std::nullopt);
  EXPECT_EQ(groups_error({16, 2, 4, 4}), std::nullopt);
}

TEST(BatchSplit, SmallerMicroBatchesAreWholeGroups) {
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(smaller_micro_batches({32, 2, 16, 2}), (Sizes{8, 4, 2}));
  EXPECT_EQ(smaller_micro_batches({64, 2, 12, 4}), (Sizes{4}));
  EXPECT_EQ(smaller_micro_batches({16, 1, 16, 3}), (Sizes{6, 3}));
  EXPECT_EQ(smaller_micro_batches({32, 2, 64, 4}), (Sizes{8, 4}));
  EXPECT_TRUE(smaller_micro_batches({16, 2, 8, 8}).empty());
  EXPECT_TRUE(smaller_micro_batches({16, 2, 8, 16}).empty());
  EXPECT_EQ(smaller_micro_batch_error({32, 2, 16, 2}), std::nullopt);
  EXPECT_EQ(smaller_micro_batch_error({16, 2, 8, 8}),
            "a micro-batch of 8 is no more than one batch-norm group of 8");
  EXPECT_EQ(smaller_micro_batch_error({16, 2, 8, 16}),
            "batch-norm groups of 16 span ranks, and their samples must be in "
            "flight together");
}

// The samples of each rank are the same, groups stay whole, and all ranks have
// the same number of micro-batches.
TEST(BatchSplit, ASmallerMicroBatchCutsTheSamePart) {
  int64_t compared = 0;
  for (const int64_t batch : {8, 12, 16, 30}) {
    for (const int ranks : {1, 2, 3}) {
      for (const int64_t group : {1, 2, 3, 4}) {
        for (const int64_t micro : {2, 4, 6, 12, 30}) {
          const BatchCut cut{batch, ranks, micro, {group}};
          if (groups_error(cut)) continue;
          for (const int64_t size : smaller_micro_batches(cut)) {
            for (int64_t count = 1; count <= batch; ++count) {
              size_t micro_batches = 0;
              for (int rank = 0; rank < ranks; ++rank) {
                const BatchPart whole = part_of(cut, count, 4, rank);
                const BatchPart part =
                    part_in_smaller_micro_batches(cut, count, 4, rank, size);
                EXPECT_EQ(part.local, whole.local);
                if (rank == 0) micro_batches = part.micro_batches.size();
                EXPECT_EQ(part.micro_batches.size(), micro_batches);
                if (groups_span_ranks(cut, count, 4)) {
                  EXPECT_EQ(part.micro_batches, whole.micro_batches);
                  continue;
                }
                int64_t next = part.local.begin;
                for (const SampleRange& range : part.micro_batches) {
                  EXPECT_EQ(range.begin, next);
                  EXPECT_LE(range.size(), std::max(size, group));
                  EXPECT_TRUE(
                      (range.begin % group == 0 &&
                       (range.end % group == 0 || range.end == count)) ||
                      range.size() == 0);
                  next = range.end;
                  ++compared;
                }
                EXPECT_EQ(next, part.local.end);
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

// Each rank's groups by the parts themselves.
TEST(SharedGroups, AreThoseWithSamplesOnSeveralRanks) {
  int64_t shared_in_all = 0;
  for (const bool even : {false, true}) {
    for (int64_t count = 1; count <= 40; ++count) {
      for (int ranks = 1; ranks <= 9; ++ranks) {
        for (const int64_t size : {1, 3, 8, 16}) {
          const BatchCut cut{40, ranks, 40, {size, even}};
          const auto groups = batch_norm_groups(count, cut.groups, 4);
          std::vector<SharedGroup> expected;
          for (size_t i = 0; i < groups.size(); ++i) {
            std::vector<int> holders;
            for (int rank = 0; rank < ranks; ++rank) {
              const SampleRange local = part_of(cut, count, 4, rank).local;
              if (std::max(local.begin, groups[i].begin) <
                  std::min(local.end, groups[i].end)) {
                holders.push_back(rank);
              }
            }
            if (holders.size() < 2) continue;
            expected.push_back(
                {static_cast<int64_t>(i), holders.front(), holders.back(), 0});
          }
          std::vector<SharedGroup> shared = shared_groups(cut, count, 4);
          std::vector<std::vector<int>> uses(2, std::vector<int>(ranks));
          for (SharedGroup& group : shared) {
            for (int rank = group.first_rank; rank <= group.last_rank; ++rank) {
              EXPECT_EQ(uses.at(group.round)[rank]++, 0)
                  << "two groups of rank " << rank << " in one round";
            }
            group.round = 0;
            ++shared_in_all;
          }
          EXPECT_EQ(shared, expected) << count << " images on " << ranks;
        }
      }
    }
  }
  EXPECT_GT(shared_in_all, 1000);
}

TEST(SharedGroups, ByHand) {
  using Shared = std::vector<SharedGroup>;
  // 8 images a rank and groups of 16: pairs.
  EXPECT_EQ(shared_groups({32, 4, 8, {16, true}}, 32, 4),
            (Shared{{0, 0, 1, 0}, {1, 2, 3, 0}}));
  // 4 images a rank and groups of 6: ranks 1 and 4 share two groups each.
  EXPECT_EQ(shared_groups({24, 6, 4, {6, false}}, 24, 4),
            (Shared{{0, 0, 1, 0}, {1, 1, 2, 1}, {2, 3, 4, 0}, {3, 4, 5, 1}}));
  EXPECT_EQ(shared_groups({64, 4, 16, {16, true}}, 64, 4), Shared{});
}

}  // namespace
}  // namespace headroom::plan
