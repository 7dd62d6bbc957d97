#include "parallel/collectives/network_measurement.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/run_ranks.h"

namespace headroom::collectives {
namespace {

TEST(NetworkMeasurement, EveryPairMeasuresOnceAndNoRankIsInTwoPairsAtATime) {
  for (int machines = 2; machines <= kMostMachinesOfAllPairs; ++machines) {
    std::set<std::pair<int, int>> met;
    const std::vector<MachinePairs> rounds = measuring_rounds(machines);
    EXPECT_LE(rounds.size(), static_cast<size_t>(machines));
    for (const MachinePairs& pairs : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : pairs) {
        EXPECT_LT(a, b);
        EXPECT_LT(b, machines);
        EXPECT_TRUE(busy.insert(a).second) << machines;
        EXPECT_TRUE(busy.insert(b).second) << machines;
        EXPECT_TRUE(met.insert({a, b}).second) << a << " and " << b;
      }
    }
    EXPECT_EQ(met.size(), static_cast<size_t>(machines * (machines - 1) / 2));
  }
}

TEST(NetworkMeasurement,
     ManyMachinesMeasureNeighboursAndOneFarAwayInThreeRounds) {
  for (const int machines : {17, 64, 511}) {
    const std::vector<MachinePairs> rounds = measuring_rounds(machines);
    ASSERT_EQ(rounds.size(), 3u);
    std::set<int> measured;
    for (const MachinePairs& pairs : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : pairs) {
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second);
        measured.insert({a, b});
      }
    }
    EXPECT_EQ(measured.size(), static_cast<size_t>(machines));
  }
}

TEST(NetworkMeasurement, RanksOfOneMachineMeasureNothing) {
  run_ranks(3, [](int, Communicator& world) {
    EXPECT_FALSE(measure_network(world, 7, "eth0").has_value());
  });
}

TEST(NetworkMeasurement,
     AllRanksReceiveTheMeasurementsOfTheFirstRankOfEachMachine) {
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(5, [](int rank, Communicator& world) {
    const int64_t machine = std::vector<int64_t>{7, 7, 8, 9, 8}[rank];
    const auto rates =
        measure_network(world, machine, rank == 0 ? "eth0" : "eth1",
                        std::chrono::milliseconds(300));
    ASSERT_TRUE(rates.has_value());
    EXPECT_EQ(rates->machines, 3);
    EXPECT_EQ(rates->interface, "eth0");
    EXPECT_FALSE(rates->is_sample);
    EXPECT_GT(rates->slowest_bytes_per_second, 1e6);
    EXPECT_GE(rates->fastest_bytes_per_second, rates->slowest_bytes_per_second);
    EXPECT_GE(rates->latency_seconds, 0);
    EXPECT_LT(rates->latency_seconds, 0.1);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace headroom::collectives
