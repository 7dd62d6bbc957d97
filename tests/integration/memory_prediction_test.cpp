// A run's own report of its memory in each step: measured <= predicted <= 1.05
// measured on every rank, on drawn data with mosaics, and without a warning.
// After an attempt that did not fit, this holds for the policies of the retry.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kMostOver = 1.05;

// Trains, and returns the folder of the run.
fs::path train(const std::vector<std::string>& more,
               const std::string& batch = "6") {
  const fs::path folder = fresh_folder();
  const ProgramResult result = run_program(train_shapes(batch, more), folder);
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

// The predictions also hold outside of steps. The validation set of the shapes
// has fewer images than a batch.
TEST(MemoryPrediction, HoldsBesideTheSteps) {
  for (const std::string layout : {"data=2", "pipeline=2"}) {
    SCOPED_TRACE(layout);
    const fs::path run =
        train({"--processes", "2", "--layout", layout, "--zero",
               layout == "data=2" ? "3" : "0", "--epochs", "1"});
    const Json summary = read_json(run / "summary.json");
    for (const std::string phase : {"start-up", "validation", "checkpoint"}) {
      const Json& ranks = summary.at("memory").at(phase);
      ASSERT_EQ(ranks.size(), 2U);
      for (const Json& rank : ranks) {
        EXPECT_GE(rank.at("predicted_peak_bytes").get<int64_t>(),
                  rank.at("measured_peak_bytes").get<int64_t>())
            << phase << rank;
        EXPECT_GT(rank.at("measured_peak_bytes").get<int64_t>(), 0);
      }
    }
    for (const Json& event : read_lines(run / "events.jsonl")) {
      EXPECT_NE(event.at("event"), "memory_prediction") << event;
      if (event.at("event") != "validation") continue;
      EXPECT_EQ(event.at("memory").size(), 2U);
    }
  }
}

// Under a memory limit, the validation splits its batches from the start.
TEST(MemoryPrediction, AValidationIsPlannedWithTheImagesThatFit) {
  const auto metrics = [](const fs::path& run) {
    const Json summary = read_json(run / "summary.json");
    return std::vector<Json>{summary.at("map50"), summary.at("map"),
                             summary.at("precision"), summary.at("recall")};
  };
  const std::vector<std::string> once = {
      "--epochs", "1", "--micro-batch", "2", "--bn-group", "2"};
  const fs::path free = train(once, "24");
  std::vector<std::string> bounded = once;
  bounded.insert(bounded.end(), {"--memory-limit", "48MiB"});
  const fs::path tight = train(bounded, "24");
  const Json plan = read_json(tight / "plan.json");
  EXPECT_LT(plan.at("validation_images").get<int64_t>(), 24);
  EXPECT_EQ(metrics(tight), metrics(free));
  for (const Json& event : read_lines(tight / "events.jsonl")) {
    EXPECT_NE(event.at("event"), "out_of_memory") << event;
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
