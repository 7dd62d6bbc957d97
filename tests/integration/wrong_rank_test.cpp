// A rank whose weights are changed on purpose is found within the interval and
// named, and the run ends with the bits of an undisturbed one. A slow rank is
// named, too. In an undisturbed run no rank is named, even if processes share
// their cores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/integration/disturbed_run.h"
#include "tests/integration/headroom_run.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;

// Of 37 images in batches of 8 an epoch is 5 steps.
const Words kRun = {"--max-steps", "9", "--weight-digest-every", "3"};

struct Cell {
  std::string name;
  Words layout;
  std::string fault;
  int rank = 1;            // the wrong rank
  int64_t compared = 6;    // steps of the state that was found to differ
  bool is_decided = true;  // whether others outvote the rank
};

void PrintTo(const Cell& cell, std::ostream* out) { *out << cell.name; }

struct Finished {
  std::vector<Json> steps;
  std::string weights;
};

Finished finished(const fs::path& folder) {
  return {steps_so_far(folder),
          text_of(folder / "runs/train/exp/weights/last.safetensors")};
}

// The run of this layout without a fault, in a folder of its own.
const Finished& undisturbed(const Words& layout) {
  static std::map<Words, Finished> runs;
  Finished& run = runs[layout];
  if (run.steps.empty()) {
    const fs::path folder =
        fs::path(HEADROOM_BUILD_DIR) / "tests/runs/WrongRankUndisturbed";
    fs::remove_all(folder);
    train_in(folder, joined(train_fp64("8"), kRun), layout);
    EXPECT_TRUE(events_named(folder, "card_failure").empty());
    run = finished(folder);
  }
  return run;
}

class WrongRank : public ::testing::TestWithParam<Cell> {};

TEST_P(WrongRank, IsNamedAndTheBitsAreRightAfterwards) {
  const Cell& cell = GetParam();
  const Finished& expected = undisturbed(cell.layout);
  const fs::path folder = fresh_folder();
  const ProgramResult result =
      run_program(joined(joined(train_fp64("8"), kRun),
                         joined(cell.layout, {"--inject", cell.fault})),
                  folder);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_same_steps(steps_so_far(folder), expected.steps);
  EXPECT_TRUE(finished(folder).weights == expected.weights);
  expect_exact_ledger(folder);
  const std::vector<Json> events = events_named(folder, "card_failure");
  ASSERT_EQ(events.size(), cell.is_decided ? 1u : 2u) << result.err;
  const std::string steps = "after " + std::to_string(cell.compared) + " steps";
  for (const Json& event : events) {
    const std::string reason = event.at("reason");
    EXPECT_THAT(reason, HasSubstr(steps));
    EXPECT_THAT(reason, HasSubstr(" on "));
    if (cell.is_decided) {
      EXPECT_EQ(event.at("rank"), cell.rank);
      EXPECT_THAT(reason, HasSubstr("rank " + std::to_string(cell.rank) +
                                    " has other weights than ranks"));
      EXPECT_THAT(reason, HasSubstr("its worker is started again"));
    } else {
      EXPECT_THAT(reason, HasSubstr("no majority shows which"));
      EXPECT_THAT(reason, HasSubstr("are computed again"));
    }
  }
}

const Words kThree = {"--processes", "3"};
const Words kTwo = {"--processes", "2"};

std::vector<Cell> cells() {
  return {{"of_three", kThree, "corrupt@rank=1,step=5"},
          // Found at the epoch's end, before there is a checkpoint.
          {"rank_0", kThree, "corrupt@rank=0,step=3", 0, 5},
          {"of_two", kTwo, "corrupt@rank=1,step=4", 1, 5, false},
          {"from_a_checkpoint",
           joined(kThree, {"--set", "checkpoint_every_steps=2"}),
           "corrupt@rank=2,step=6", 2, 8},
          {"zero_1", joined(kThree, {"--zero", "1"}), "corrupt@rank=1,step=5"}};
}

INSTANTIATE_TEST_SUITE_P(Cells, WrongRank, ::testing::ValuesIn(cells()),
                         [](const auto& cell) { return cell.param.name; });

// Two ranks differ after 5 steps and again after 9.
ProgramResult differ_twice(const fs::path& folder, const Words& more) {
  return run_program(joined(joined(joined(train_fp64("8"), kRun),
                                   joined(kTwo, {"--inject",
                                                 "corrupt@rank=1,step=3;"
                                                 "corrupt@rank=0,step=7"})),
                            more),
                     folder);
}

TEST(WrongRankOfTwo, ASecondTimeEndsTheRun) {
  const fs::path folder = fresh_folder();
  const ProgramResult result = differ_twice(folder, {});
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_THAT(result.err, HasSubstr("for the second time"));
  EXPECT_THAT(result.err, HasSubstr("--resume"));
}

TEST(WrongRankOfTwo, ASecondTimeManyStepsLaterIsComputedAgainToo) {
  const fs::path folder = fresh_folder();
  const ProgramResult result =
      differ_twice(folder, {"--set", "card_failure_steps=2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_same_steps(steps_so_far(folder), undisturbed(kTwo).steps);
  EXPECT_EQ(events_named(folder, "card_failure").size(), 4u);
}

// Cores are shared: three processes of two threads each.
TEST(SlowRank, NobodyIsNamedInAnUndisturbedRun) {
  const fs::path folder = fresh_folder();
  train_in(folder, train_fp64("8"),
           {"--processes", "3", "--threads", "2", "--max-steps", "60"});
  EXPECT_TRUE(events_named(folder, "slow_rank").empty());
}

TEST(SlowRank, IsNamedOnce) {
  const fs::path folder = fresh_folder();
  train_in(folder, train_fp64("8"),
           {"--processes", "2", "--max-steps", "60", "--inject",
            "slow@rank=1,step=0,percent=30"});
  const std::vector<Json> events = events_named(folder, "slow_rank");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("rank"), 1);
  EXPECT_THAT(events[0].at("reason").get<std::string>(),
              HasSubstr("is slow: its passes take"));
}

}  // namespace
}  // namespace headroom::testing
