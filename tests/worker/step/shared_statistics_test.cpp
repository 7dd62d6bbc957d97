// Which ranks exchange the statistics of which batch-norm groups, and how many
// bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "parallel/base/text.h"
#include "tests/support/run_ranks.h"
#include "worker/step/parallel_context.h"

namespace headroom::step {
namespace {

constexpr int64_t kStride = 32, kHeight = 96, kWidth = 64;
constexpr int64_t kSmallest = 6;
constexpr int64_t kNumbers = 10;  // of one group: two for each of 5 channels

struct Cut {
  int data = 1, spatial = 1;
  int64_t batch = 0, group = 16;
  bool even = true;

  plan::Plan plan() const {
    plan::Plan plan;
    plan.layout = {1, data, spatial};
    plan.batch_norm_group_size = group;
    plan.even_batch_norm_groups = even;
    plan.micro_batch_size =
        plan::largest_share(batch, data, plan.batch_norm_rule());
    return plan;
  }
  plan::BatchCut cut() const {
    const plan::Plan plan = this->plan();
    return {batch, data, plan.micro_batch_size, plan.batch_norm_rule()};
  }
};

// What a rank adds to the sums of a group.
double number_of(int data_rank, int spatial_rank, int64_t group) {
  return 1 + 100 * data_rank + 7 * spatial_rank +
         1e4 * static_cast<double>(group);
}

// Exchanges the statistics of one map for a batch of `samples`, expects the
// sums over the ranks that hold a group, and returns this rank's bytes.
int64_t exchange(const Cut& run, int64_t samples, collectives::Mesh& mesh,
                 ParallelContext& context) {
  context.set_batch(samples, kHeight, kWidth);
  const plan::SampleRange local =
      plan::part_of(run.cut(), samples, kSmallest, mesh.here.data_parallel_rank)
          .local;
  const model::StepContext step = context.training(local, at::Tensor());
  const auto all =
      plan::batch_norm_groups(samples, run.cut().groups, kSmallest);
  std::vector<int64_t> here;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::max(all[i].begin, local.begin) < std::min(all[i].end, local.end)) {
      here.push_back(static_cast<int64_t>(i));
    }
  }
  EXPECT_EQ(step.groups.size(), here.size());
  std::vector<double> sums, expected;
  for (const int64_t group : here) {
    double sum = 0;
    for (int data = 0; data < run.data; ++data) {
      const plan::SampleRange theirs =
          plan::part_of(run.cut(), samples, kSmallest, data).local;
      const plan::SampleRange& whole = all[static_cast<size_t>(group)];
      if (std::max(whole.begin, theirs.begin) >=
          std::min(whole.end, theirs.end)) {
        continue;
      }
      for (int part = 0; part < run.spatial; ++part) {
        sum += number_of(data, part, group);
      }
    }
    sums.insert(
        sums.end(), kNumbers,
        number_of(mesh.here.data_parallel_rank, mesh.here.spatial_rank, group));
    expected.insert(expected.end(), kNumbers, sum);
  }
  const int64_t before = mesh.statistics_bytes() + mesh.spatial->bytes();
  if (step.exchange != nullptr) step.exchange->sum(sums);
  EXPECT_EQ(sums, expected) << "data rank " << mesh.here.data_parallel_rank;
  return mesh.statistics_bytes() + mesh.spatial->bytes() - before;
}

// The bytes of each rank.
std::vector<int64_t> bytes_of(const Cut& run, int64_t samples) {
  const plan::Plan plan = run.plan();
  std::vector<int64_t> bytes(static_cast<size_t>(plan.layout.world_size()));
  run_ranks(plan.layout.world_size(), [&](int rank,
                                          collectives::Communicator& world) {
    collectives::Mesh mesh(world, plan.layout);
    ParallelContext context(plan, run.batch, kStride, mesh, nullptr);
    bytes[static_cast<size_t>(rank)] = exchange(run, samples, mesh, context);
  });
  return bytes;
}

TEST(SharedStatistics, OnlyTheRanksOfAGroupSumIt) {
  constexpr int64_t kGroup = kNumbers * sizeof(double);
  using Bytes = std::vector<int64_t>;
  // 8 images a rank: two pairs share a group each. All four would have summed
  // both groups.
  EXPECT_EQ(bytes_of({4, 1, 32}, 32), Bytes(4, kGroup));
  // 8 groups of 4, two of them on each rank.
  EXPECT_EQ(bytes_of({4, 1, 32, 4, false}, 32), Bytes(4, 0));
  // A group a rank.
  EXPECT_EQ(bytes_of({4, 1, 64}, 64), Bytes(4, 0));
  // Shares of 4, groups of 6: the ranks between two groups sum both.
  EXPECT_EQ(bytes_of({6, 1, 24, 6, false}, 24),
            (Bytes{kGroup, 2 * kGroup, kGroup, kGroup, 2 * kGroup, kGroup}));
  // All ranks share one group.
  EXPECT_EQ(bytes_of({3, 1, 12}, 12), Bytes(3, kGroup));
  // The last rank has no sample.
  EXPECT_EQ(bytes_of({4, 1, 16}, 3), (Bytes{kGroup, kGroup, kGroup, 0}));
}

TEST(SharedStatistics, AnyBatchHasTheSumsOfItsGroups) {
  for (const bool even : {false, true}) {
    for (const auto& [data, spatial] : {std::pair{5, 1}, {3, 2}}) {
      const Cut run{data, spatial, 30, 7, even};
      const plan::Plan plan = run.plan();
      run_ranks(
          plan.layout.world_size(), [&](int, collectives::Communicator& world) {
            collectives::Mesh mesh(world, plan.layout);
            ParallelContext context(plan, run.batch, kStride, mesh, nullptr);
            context.begin_generation({30, 11}, kHeight, kWidth);
            for (int64_t samples = 1; samples <= 30; ++samples) {
              SCOPED_TRACE(cat(samples, " images, ", data, " x ", spatial));
              exchange(run, samples, mesh, context);
            }
          });
    }
  }
}

TEST(SharedStatistics, AreExchangedAgainAfterAFailure) {
  const Cut run{4, 1, 32};
  RankGenerations generations(4);
  run_ranks(4, [&](int rank, collectives::Communicator&) {
    collectives::CountingCommunicator world(generations.next(rank));
    collectives::Mesh mesh(world, run.plan().layout);
    ParallelContext context(run.plan(), run.batch, kStride, mesh, nullptr);
    context.begin_generation({32}, kHeight, kWidth);
    exchange(run, 32, mesh, context);
    mesh.disconnect();
    world.disconnect();
    world.reconnect(generations.next(rank));
    mesh.reconnect();
    // The last batch's ranks are other ones.
    context.begin_generation({32, 20}, kHeight, kWidth);
    exchange(run, 20, mesh, context);
    exchange(run, 32, mesh, context);
  });
}

}  // namespace
}  // namespace headroom::step
