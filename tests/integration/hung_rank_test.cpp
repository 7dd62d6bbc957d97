// A training thread hangs forever while its process still sends heartbeats. The
// rank is named, and its agent kills it. This releases its peers, and a
// successor takes its place. A hang is detected after 10 s.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/integration/disturbed_run.h"
#include "tests/integration/kill_cells.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

class HungRank : public ::testing::TestWithParam<Kill> {};

TEST_P(HungRank, IsNamedAndReplaced) {
  const Kill& kill = GetParam();
  const std::vector<Json>& expected = undisturbed(kill);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kKillSteps));
  const fs::path folder = fresh_folder();
  std::vector<std::string> words = command_of(kill);
  words.insert(words.end(), {"--inject", kill.faults});
  Program run(words, folder);
  EXPECT_TRUE(wait_until(
      [&] {
        return text_of(folder / "stderr.txt").find("--inject hang@") !=
               std::string::npos;
      },
      60));
  const Clock::time_point hung = Clock::now();
  EXPECT_TRUE(wait_until(
      [&] { return !events_named(folder, "loss_of_process").empty(); }, 60));
  const double detection = seconds_since(hung);
  const ProgramResult result = run.join();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(detection, 9) << "max(10 s, 5 steps)";
  EXPECT_LT(detection, 12);
  const Json named = events_named(folder, "loss_of_process").front();
  EXPECT_NE(kill.faults.find("rank=" + named.at("rank").dump() + ","),
            std::string::npos)
      << named;
  EXPECT_NE(named.at("reason").get<std::string>().find("stuck"),
            std::string::npos)
      << named;
  expect_same_steps(steps_so_far(folder), expected);
  expect_exact_ledger(folder);
  std::printf("%-28s detected %.3f s\n", kill.name.c_str(), detection);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, HungRank,
    ::testing::Values(Kill{"rank_1_forward",
                           {"--processes", "2"},
                           fault_at("hang", 1, 4, "forward")},
                      Kill{"rank_0_vote",
                           {"--processes", "2"},
                           fault_at("hang", 0, 4, "vote")},
                      Kill{"last_stage_commit",
                           {"--layout", "pipeline=2"},
                           fault_at("hang", 1, 4, "commit")}),
    name_of_kill);

}  // namespace
}  // namespace headroom::testing
