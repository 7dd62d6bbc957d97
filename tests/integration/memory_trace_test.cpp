// Tests headroom train --memory-trace: which file it writes, what it refuses,
// and that it does not change results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

ProgramResult train(const fs::path& folder, std::vector<std::string> more) {
  fs::create_directories(folder);
  return run_program(
      joined(headroom_command("train --synthetic-input --cfg yolov5n --img 64 "
                              "--batch 4 --threads 1 "
                              "--layout data=2 --max-steps 4"),
             more),
      folder);
}

std::vector<std::string> losses(const fs::path& folder) {
  std::vector<std::string> texts;
  for (const Json& step : read_lines(folder / "runs/train/exp/steps.jsonl")) {
    texts.push_back(step.at("loss").dump());
  }
  return texts;
}

TEST(MemoryTraceRun, HoldsThreeStepsOfEveryRankAndChangesNothing) {
  const fs::path folder = fresh_folder();
  const ProgramResult plain = train(folder / "plain", {});
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const ProgramResult traced =
      train(folder / "traced", {"--memory-trace", "step.json"});
  ASSERT_EQ(traced.exit_code, 0) << traced.err;
  EXPECT_EQ(losses(folder / "plain"), losses(folder / "traced"));

  const Json trace = read_json(folder / "traced/step.json");
  std::map<int, std::map<std::string, int>> slices;
  std::map<int, std::map<std::string, int64_t>> peaks, last;
  for (const Json& event : trace.at("traceEvents")) {
    const int rank = event.at("pid");
    if (event.at("ph") == "X") ++slices[rank][event.at("name")];
    if (event.at("ph") != "C") continue;
    const int64_t bytes = event.at("args").at("bytes");
    EXPECT_GE(bytes, 0) << event;
    int64_t& peak = peaks[rank][event.at("name")];
    peak = std::max(peak, bytes);
    last[rank][event.at("name")] = bytes;
  }
  ASSERT_EQ(slices.size(), 2u);
  const std::vector<Json> steps =
      read_lines(folder / "traced/runs/train/exp/steps.jsonl");
  for (const int rank : {0, 1}) {
    for (const char* phase : {"forward", "backward", "vote", "commit"}) {
      EXPECT_EQ(slices[rank][phase], 3) << phase << " of rank " << rank;
    }
    for (const char* category : {"parameters", "gradients", "optimizer",
                                 "average", "activations", "loss"}) {
      EXPECT_GT(peaks[rank][category], 0) << category;
    }
    // There are two float32 gradients for yolov5n's 1.87 million weights: the
    // step's and the accumulated one.
    EXPECT_EQ(peaks[rank]["gradients"], 2 * peaks[rank]["optimizer"]);
    EXPECT_NEAR(static_cast<double>(peaks[rank]["optimizer"]), 4 * 1.87e6, 2e5);
    EXPECT_EQ(last[rank]["activations"], 0) << "between steps";
    int64_t measured = 0;
    for (size_t step = 0; step < 3; ++step) {
      measured = std::max<int64_t>(
          measured,
          steps[step].at("memory").at(rank).at("measured_peak_bytes"));
    }
    EXPECT_EQ(peaks[rank]["all tensors"], measured) << "steps.jsonl's peak";
  }

  std::ifstream picture(folder / "traced/step.png", std::ios::binary);
  std::string head(4, '\0');
  picture.read(head.data(), 4);
  EXPECT_EQ(head, "\x89PNG");
}

TEST(MemoryTraceRun, AFileThatCannotBeWrittenIsRefusedAtTheStart) {
  const fs::path folder = fresh_folder();
  const ProgramResult result =
      train(folder, {"--memory-trace", "nowhere/step.json"});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, ::testing::HasSubstr(
                              "nowhere/step.json cannot be created (No such"));
  EXPECT_THAT(result.err, ::testing::HasSubstr("--memory-trace"));
  EXPECT_FALSE(fs::exists(folder / "runs")) << "something was left behind";
  EXPECT_LT(result.seconds, 20);
}

}  // namespace
}  // namespace headroom::testing
