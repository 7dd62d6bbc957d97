// Tests the order in which small sums over several machines are added up, and
// the ranks that exchange them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "parallel/collectives/backend.h"
#include "parallel/collectives/network_collectives.h"
#include "tests/support/run_ranks.h"

namespace headroom::collectives {
namespace {

constexpr int64_t kCount = 300;

// Numbers of very different sizes, so that another order gives other bits.
template <typename Scalar>
Scalar value_of(int rank, int64_t at) {
  return static_cast<Scalar>(
      std::sin(1.0 + rank * 7.3 + static_cast<double>(at)) *
      std::pow(10.0, static_cast<double>((rank * 5 + at * 3) % 11 - 5)));
}

// The sum as network_collectives.h describes it.
template <typename Scalar>
Scalar expected_sum_of_machines(const std::vector<int>& machine_of_rank,
                                int64_t at) {
  std::vector<int> machines;  // in the order of their lowest ranks
  std::vector<Scalar> sums;
  for (size_t rank = 0; rank < machine_of_rank.size(); ++rank) {
    const Scalar value = value_of<Scalar>(static_cast<int>(rank), at);
    const auto found = std::ranges::find(machines, machine_of_rank[rank]);
    if (found == machines.end()) {
      machines.push_back(machine_of_rank[rank]);
      sums.push_back(value);
    } else {
      sums[static_cast<size_t>(found - machines.begin())] += value;
    }
  }
  const size_t paired = std::bit_floor(sums.size());
  for (size_t i = paired; i < sums.size(); ++i) sums[i - paired] += sums[i];
  for (size_t distance = 1; distance < paired; distance *= 2) {
    for (size_t i = 0; i < paired; i += 2 * distance) {
      sums[i] = sums[i] + sums[i + distance];
    }
  }
  return sums[0];
}

template <typename Scalar>
void expect_sum_of_machines(Communicator& ranks,
                            const std::vector<int>& machine_of_rank,
                            at::ScalarType type) {
  const at::Tensor sum = at::empty({kCount}, type);
  auto* const values = sum.data_ptr<Scalar>();
  for (int64_t i = 0; i < kCount; ++i) {
    values[i] = value_of<Scalar>(ranks.rank(), i);
  }
  ranks.all_reduce(sum);
  std::vector<Scalar> expected;
  for (int64_t i = 0; i < kCount; ++i) {
    expected.push_back(expected_sum_of_machines<Scalar>(machine_of_rank, i));
  }
  EXPECT_EQ(std::memcmp(values, expected.data(), kCount * sizeof(Scalar)), 0)
      << "rank " << ranks.rank() << " of " << ranks.size();
}

void expect_sums_of_machines(const std::vector<int>& machine_of_rank) {
  RankOptions options;
  options.backend = RankBackend::kMachines;
  options.machine_of_rank = machine_of_rank;
  run_ranks(
      static_cast<int>(machine_of_rank.size()),
      [&](int rank, Communicator& ranks) {
        std::minstd_rand random(static_cast<unsigned>(rank + 1));
        for (int round = 0; round < 3; ++round) {
          // The ranks arrive in another order each time.
          std::this_thread::sleep_for(
              std::chrono::microseconds(random() % 3000));
          expect_sum_of_machines<double>(ranks, machine_of_rank, at::kDouble);
          expect_sum_of_machines<float>(ranks, machine_of_rank, at::kFloat);
        }
        const at::Tensor largest = at::ones({5}, at::kLong) * rank;
        ranks.all_reduce(largest, ReduceOp::kMax);
        EXPECT_EQ(largest[4].item<int64_t>(), ranks.size() - 1);
      },
      options);
}

TEST(SmallSums, HaveOneOrderWhateverTheNumberOfMachines) {
  for (int machines = 1; machines <= 9; ++machines) {
    for (int each = 1; each <= 3; ++each) {
      std::vector<int> machine_of_rank;
      for (int rank = 0; rank < machines * each; ++rank) {
        machine_of_rank.push_back(rank / each);
      }
      expect_sums_of_machines(machine_of_rank);
    }
  }
}

TEST(SmallSums, MachinesMayHaveAnyRanks) {
  expect_sums_of_machines({0, 1, 2, 0, 1, 2});
  expect_sums_of_machines({3, 0, 0, 1, 0, 2, 1});
}

// All ranks get the bits of one and the same sum that is no number.
TEST(SmallSums, OfWhatIsNoNumberAreEqualOnAllRanks) {
  RankOptions options;
  options.backend = RankBackend::kMachines;
  options.machine_of_rank = {0, 0, 1, 2, 2};
  std::vector<uint64_t> bits(5);
  run_ranks(
      5,
      [&](int rank, Communicator& ranks) {
        const at::Tensor sum = at::zeros({1}, at::kDouble);
        // Each rank has another of the many values that are no number.
        const uint64_t own =
            0x7ff8'0000'0000'0001 + static_cast<uint64_t>(rank);
        std::memcpy(sum.data_ptr(), &own, sizeof(own));
        ranks.all_reduce(sum);
        std::memcpy(&bits[static_cast<size_t>(rank)], sum.data_ptr(),
                    sizeof(own));
      },
      options);
  EXPECT_TRUE(std::isnan(std::bit_cast<double>(bits[0])));
  EXPECT_EQ(bits, std::vector<uint64_t>(5, bits[0]));
}

TEST(SmallSums, ALeaderHasPartnersForEachDoublingOnly) {
  for (int size = 1; size <= 40; ++size) {
    std::vector<int> leaders;
    for (int i = 0; i < size; ++i) leaders.push_back(3 * i + 1);
    const auto steps =
        static_cast<size_t>(std::bit_width(static_cast<unsigned>(size)) - 1);
    for (const int rank : leaders) {
      const std::vector<int> partners = sum_partners(leaders, rank);
      EXPECT_LE(partners.size(), steps + 1) << rank << " of " << size;
      for (const int partner : partners) {
        EXPECT_EQ(std::ranges::count(sum_partners(leaders, partner), rank), 1)
            << rank << " and " << partner << " of " << size;
      }
      EXPECT_TRUE(sum_partners(leaders, rank + 1).empty());
    }
  }
}

TEST(SmallSums, AreThoseWhoseDelayCostsMoreThanTheirBytes) {
  const auto is_small = [](int64_t bytes, int ranks) {
    return is_small_sum(at::empty({bytes}, at::kByte), ranks);
  };
  EXPECT_TRUE(is_small(64 << 10, 2));
  EXPECT_FALSE(is_small((64 << 10) + 1, 2));
  EXPECT_TRUE(is_small(256 << 10, 64));
  EXPECT_FALSE(is_small((256 << 10) + 1, 64));
  // The vote of 4,096 ranks. A sum must fit into a machine's shared memory.
  EXPECT_TRUE(is_small(8 * (7 * 4096 + 8), 4096));
  EXPECT_FALSE(is_small(4 << 20, 4096));
}

// A part of a group that spans machines may be on one of them.
TEST(SmallSums, PartsShareMemoryWhereTheyCan) {
  RankOptions options;
  options.backend = RankBackend::kMachines;
  options.machine_of_rank = {0, 0, 1, 1};
  run_ranks(
      4,
      [](int rank, Communicator& ranks) {
        EXPECT_EQ(ranks.buffers(), nullptr);
        const auto here = ranks.split(rank / 2, rank);
        EXPECT_NE(here->buffers(), nullptr) << "the sums of one machine";
        const auto across = ranks.split(rank % 2, rank);
        EXPECT_EQ(across->buffers(), nullptr);
        const at::Tensor sum = at::ones({10});
        here->all_reduce(sum);
        across->all_reduce(sum);
        EXPECT_EQ(sum[9].item<float>(), 4);
        ranks.barrier();
      },
      options);
}

}  // namespace
}  // namespace headroom::collectives
