// Every collective, on every backend whose ranks can be threads.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/parallel/collectives/collective_checks.h"
#include "tests/support/run_ranks.h"

namespace headroom {
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
    testing::Combine(testing::Values(RankBackend::kLocal, RankBackend::kGloo,
                                     RankBackend::kSharedMemory),
                     testing::Values(2, 3, 4),
                     testing::Range<size_t>(0, collective_checks().size())),
    name_of);

}  // namespace
}  // namespace headroom
