// What a run says of its memory, step by step: measured <= predicted <= 1.05
// measured on every rank, for drawn data with mosaics, and no warning; after an
// attempt that did not fit, for the policies that it went on with.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kMostOver = 1.05;

// The run's folder.
fs::path train(const std::vector<std::string>& more) {
  const fs::path folder = fresh_folder();
  const ProgramResult result = run_program(train_shapes("6", more), folder);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return folder / "runs/train/exp";
}

void expect_predicted(const fs::path& run, size_t steps, size_t ranks) {
  const std::vector<Json> lines = read_lines(run / "steps.jsonl");
  EXPECT_EQ(lines.size(), steps);
  for (const Json& step : lines) {
    ASSERT_EQ(step.at("memory").size(), ranks);
    for (const Json& rank : step.at("memory")) {
      ASSERT_TRUE(rank.at("predicted_peak_bytes").is_number()) << step;
      const double ratio = rank.at("predicted_peak_bytes").get<double>() /
                           rank.at("measured_peak_bytes").get<double>();
      EXPECT_GE(ratio, 1) << rank << " of step " << step.at("step");
      EXPECT_LE(ratio, kMostOver) << rank << " of step " << step.at("step");
    }
  }
  for (const Json& event : read_lines(run / "events.jsonl")) {
    EXPECT_NE(event.at("event"), "memory_prediction") << event;
  }
}

TEST(MemoryPrediction, HoldsOnEveryStep) {
  for (const std::string layout : {"data=2", "pipeline=2", "spatial=2"}) {
    SCOPED_TRACE(layout);
    expect_predicted(
        train({"--processes", "2", "--layout", layout, "--max-steps", "3"}), 3,
        2);
  }
}

TEST(MemoryPrediction, KnowsThePoliciesOfTheLadder) {
  const fs::path run = train(
      {"--max-steps", "4", "--inject",
       "oom@rank=0,step=1,allocation=40;oom@rank=0,step=1,allocation=60"});
  expect_predicted(run, 4, 1);
}

}  // namespace
}  // namespace headroom::testing
