// Tests every collective on every backend whose ranks can be threads.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "parallel/collectives/backend.h"
#include "parallel/collectives/gather.h"
#include "tests/parallel/collectives/collective_checks.h"
#include "tests/support/in_memory_store.h"
#include "tests/support/run_ranks.h"

namespace headroom::collectives {
namespace {

using Case = std::tuple<RankBackend, int, size_t>;

class CollectivesTest : public testing::TestWithParam<Case> {};

TEST_P(CollectivesTest, GivesTheRightResultOnEveryRank) {
  const auto& [backend, size, index] = GetParam();
  const CollectiveCheck& check = collective_checks()[index];
  RankOptions options;
  options.backend = backend;
  EXPECT_NO_THROW(run_ranks(
      size, [&check](int, Communicator& ranks) { check.run(ranks); }, options));
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const RankBackend backend = std::get<0>(info.param);
  return to_string(backend) + "_" + std::to_string(std::get<1>(info.param)) +
         "_" + collective_checks()[std::get<2>(info.param)].name;
}

INSTANTIATE_TEST_SUITE_P(
    Backends, CollectivesTest,
    testing::Combine(testing::Values(RankBackend::kLocal, RankBackend::kNetwork,
                                     RankBackend::kLazyNetwork,
                                     RankBackend::kSharedMemory,
                                     RankBackend::kMachines),
                     testing::Values(2, 3, 4),
                     testing::Range<size_t>(0, collective_checks().size())),
    name_of);

// With eight ranks some pairs connect only when they send a message.
INSTANTIATE_TEST_SUITE_P(
    EightRanks, CollectivesTest,
    testing::Combine(testing::Values(RankBackend::kLazyNetwork),
                     testing::Values(8),
                     testing::Range<size_t>(0, collective_checks().size())),
    name_of);

// A collective allocates no tensor memory, so a rank without free memory can
// still take part.
class AllocationTest : public testing::TestWithParam<RankBackend> {};

TEST_P(AllocationTest, NoOperationAllocatesTensorMemory) {
  activations::CountingAllocator::install();
  activations::CountingAllocator& allocator =
      activations::CountingAllocator::instance();
  // Counts the allocations of this thread and of a backend's own threads.
  const int64_t before = allocator.allocations();
  RankOptions options;
  options.backend = GetParam();
  run_ranks(
      3,
      [&](int rank, Communicator& ranks) {
        const at::Tensor whole = at::ones({3 * 5000}, at::kDouble);
        const at::Tensor part = at::ones({5000}, at::kDouble);
        ranks.barrier();
        const int64_t start = allocator.allocations();
        ranks.all_reduce(whole);
        ranks.all_gather(whole, part);
        ranks.reduce_scatter(part, whole);
        ranks.broadcast(part, 1);
        if (rank == 0) ranks.send(part, 1);
        if (rank == 1) ranks.recv(part, 0);
        ranks.barrier();
        EXPECT_EQ(allocator.allocations(), start);
      },
      options);
  EXPECT_EQ(allocator.allocations(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, AllocationTest,
    testing::Values(RankBackend::kLocal, RankBackend::kNetwork,
                    RankBackend::kLazyNetwork, RankBackend::kSharedMemory,
                    RankBackend::kMachines),
    [](const auto& info) { return to_string(info.param); });

// In a large group, a rank is connected only with the ranks whose distance is a
// power of two. With 24 ranks these are the distances 1, 2, 4 and 8 in both
// directions; 16 in one direction is 8 in the other.
TEST(LazyNetwork, CollectivesNeedFewConnections) {
  constexpr int kRanks = 24;
  RankOptions options;
  options.backend = RankBackend::kLazyNetwork;
  const size_t before = open_sockets();
  size_t most = 0;
  run_ranks(
      kRanks,
      [&](int rank, Communicator& ranks) {
        const at::Tensor tensor = at::ones({10000});
        ranks.all_reduce(tensor);
        EXPECT_EQ(tensor[9999].item<float>(), kRanks);
        ranks.broadcast(tensor, 5);
        const auto all = tell_all(ranks, std::array<int64_t, 1>{rank});
        EXPECT_EQ(all.back().front(), kRanks - 1);
        ranks.barrier();
        if (rank == 0) most = open_sockets();
        ranks.barrier();
      },
      options);
  // Each rank has its own port.
  EXPECT_LE(most - before, kRanks * (2 * 4 + 1));
}

// Each rank sums one chunk, beginning with the previous rank and going down.
// This order must not change, so that a run gives the same bits with every
// version.
TEST(Network, LargeSumsHaveOneOrder) {
  constexpr int kRanks = 3;
  constexpr int64_t kChunk = 8192;
  const auto value = [](int rank, int64_t at) {
    return std::pow(10.0F, static_cast<float>((rank * 5 + at * 3) % 11 - 5)) *
           static_cast<float>(1 + rank + at);
  };
  RankOptions options;
  options.backend = RankBackend::kNetwork;
  run_ranks(
      kRanks,
      [&](int rank, Communicator& ranks) {
        const at::Tensor sum = at::empty({kRanks * kChunk});
        float* const values = sum.data_ptr<float>();
        for (int64_t i = 0; i < sum.numel(); ++i) values[i] = value(rank, i);
        ranks.all_reduce(sum);
        for (int64_t i = 0; i < sum.numel(); ++i) {
          const int chunk = static_cast<int>(i / kChunk);
          float expected = value((chunk + kRanks - 1) % kRanks, i);
          for (int step = 2; step <= kRanks; ++step) {
            expected += value((chunk + kRanks - step) % kRanks, i);
          }
          EXPECT_EQ(values[i], expected) << i;
        }
      },
      options);
}

TEST(Network, RanksOfOneMachineMeetInAFolder) {
  std::string folder = testing::TempDir() + "sockets-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto store = std::make_shared<InMemoryStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      NetworkOptions options;
      options.hostname = folder;
      const auto ranks =
          make_network_communicator(store, "folder", rank, 3, options);
      const auto part = ranks->split(rank / 2, rank);
      const at::Tensor sum = at::ones({100000});
      ranks->all_reduce(sum);
      part->all_reduce(sum);
      EXPECT_EQ(sum[99999].item<float>(), rank < 2 ? 6 : 3);
      ranks->barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace headroom::collectives
