// Runs the coordinator's core with seeded random faults, thousands of times.
//
// The suites named Slow run with the label `slow`.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/coordinator/run/simulated_cluster.h"

namespace headroom::coordinator {
namespace {

void simulate(uint64_t begin, uint64_t end) {
  int64_t generations = 0, faults = 0, failed = 0, crash_loops = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SimulatedCluster cluster(seed, 1 + static_cast<int>(seed % 3),
                             1 + static_cast<int>(seed / 3 % 2));
    const std::string violation = cluster.run();
    if (violation.find("for the fifth time") != std::string::npos) {
      ++crash_loops;  // such random faults look like a crash loop
      continue;
    }
    EXPECT_EQ(violation, "") << "seed " << seed;
    if (!violation.empty() && ++failed == 5) break;
    generations += cluster.generations();
    faults += cluster.faults();
  }
  std::printf("%lld runs, %lld faults, %lld generations\n",
              static_cast<long long>(end - begin),
              static_cast<long long>(faults),
              static_cast<long long>(generations));
  EXPECT_LE(crash_loops, static_cast<int64_t>((end - begin) / 50));
  EXPECT_GT(generations, static_cast<int64_t>(2 * (end - begin)));
}

TEST(Simulation, EveryRunEndsAndKeepsItsInvariants) { simulate(0, 300); }

TEST(Slow, TenThousandSeeds) { simulate(300, 10'300); }

}  // namespace
}  // namespace headroom::coordinator
