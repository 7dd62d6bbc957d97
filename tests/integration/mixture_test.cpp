// Under --memory-limit, layers get activation policies that fit: the run stays
// within the limit without a failed attempt, and its losses are those of a run
// that keeps all activations, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

struct Trained {
  std::vector<std::string> losses;
  int64_t peak = 0;  // the largest measured peak of all ranks
  int64_t attempts = 0;
};

Trained train(const fs::path& folder, std::vector<std::string> more) {
  fs::create_directories(folder);
  const ProgramResult result = run_program(
      joined(headroom_command("train --synthetic-input --cfg yolov5n --img 160 "
                              "--batch 2 --bn-group 2 "
                              "--threads 1 --max-steps 3"),
             more),
      folder);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  Trained run;
  for (const Json& step : read_lines(folder / "runs/train/exp/steps.jsonl")) {
    run.losses.push_back(step.at("loss").dump());
    run.attempts = std::max<int64_t>(run.attempts, step.at("attempt"));
    for (const Json& rank : step.at("memory")) {
      run.peak = std::max<int64_t>(run.peak, rank.at("measured_peak_bytes"));
    }
  }
  return run;
}

TEST(Mixture, FitsAtOnceAndChangesNoBit) {
  const fs::path folder = fresh_folder();
  const Trained keep = train(folder / "keep", {"--activations", "keep"});
  const Trained least =
      train(folder / "recompute", {"--activations", "recompute"});
  ASSERT_LT(least.peak, keep.peak);
  const int64_t limit = least.peak + (keep.peak - least.peak) / 2;
  const Trained mixed =
      train(folder / "mixed", {"--memory-limit", std::to_string(limit)});
  EXPECT_EQ(mixed.losses, keep.losses);
  EXPECT_EQ(least.losses, keep.losses);
  EXPECT_EQ(mixed.attempts, 1) << "no attempt failed";
  EXPECT_LE(mixed.peak, limit);
  EXPECT_GT(mixed.peak, least.peak) << "more is kept than must be";

  const Json plan = read_json(folder / "mixed/runs/train/exp/plan.json");
  const auto policies = plan.at("activation_policies");
  std::set<std::string> used;
  for (const Json& policy : policies) used.insert(policy.dump());
  EXPECT_GE(used.size(), 2u) << plan;
}

}  // namespace
}  // namespace headroom::testing
