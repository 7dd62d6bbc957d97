// --multi-scale: sizes that depend only on the seed and the step, also after a
// resume and a lost process. The plan for the largest size covers the bytes of
// all sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kRun = "runs/train/exp";

// Trains yolov5n at 96 px, so the sizes are 64, 96 and 128.
std::vector<Json> train(const fs::path& folder,
                        const std::vector<std::string>& more) {
  fs::create_directories(folder);
  std::vector<std::string> flags = {"--multi-scale", "--epochs", "40"};
  flags.insert(flags.end(), more.begin(), more.end());
  const ProgramResult result = run_program(train_shapes("8", flags), folder);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return read_lines(folder / kRun / "steps.jsonl");
}

int64_t side_of(const Json& step) {
  const Json& size = step.at("image_size");
  EXPECT_EQ(size.at(0), size.at(1));
  return size.at(0).get<int64_t>();
}

void expect_same_steps(const std::vector<Json>& a, const std::vector<Json>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t step = 0; step < a.size(); ++step) {
    for (const char* key : {"step", "image_size", "loss", "box", "obj", "cls",
                            "grad_norm", "samples", "lr"}) {
      EXPECT_EQ(a[step].at(key).dump(), b[step].at(key).dump())
          << key << " of step " << step;
    }
  }
}

TEST(MultiScale, TheLargestSizeStaysWithinThePlan) {
  const fs::path folder = fresh_folder();
  std::map<int64_t, int64_t> measured;  // the maximum by side
  for (const std::string layout : {"data=2", "pipeline=2"}) {
    SCOPED_TRACE(layout);
    const std::vector<Json> steps =
        train(folder / layout, {"--layout", layout, "--max-steps", "12",
                                "--memory-limit", "200MiB", "--bn-group", "4"});
    ASSERT_EQ(steps.size(), 12u);
    const Json plan = read_json(folder / layout / kRun / "plan.json");
    for (const Json& step : steps) {
      for (const Json& memory : step.at("memory")) {
        const auto rank = memory.at("rank").get<size_t>();
        const int64_t predicted =
            memory.at("predicted_peak_bytes").get<int64_t>();
        const int64_t peak = memory.at("measured_peak_bytes").get<int64_t>();
        EXPECT_LE(peak, predicted) << step.at("step");
        EXPECT_GE(static_cast<double>(peak) * 1.1,
                  static_cast<double>(predicted))
            << step.at("step");
        const auto bound = plan.at("predicted_peak_bytes");
        EXPECT_LE(predicted,
                  bound.at(std::min(rank, bound.size() - 1)).get<int64_t>());
        measured[side_of(step)] = std::max(measured[side_of(step)], peak);
      }
    }
    for (const Json& event :
         read_lines(folder / layout / kRun / "events.jsonl")) {
      EXPECT_NE(event.at("event"), "memory_prediction") << event;
      EXPECT_NE(event.at("event"), "out_of_memory") << event;
    }
  }
  ASSERT_EQ(measured.size(), 3u);
  EXPECT_EQ(measured.begin()->first, 64);
  EXPECT_EQ(measured.rbegin()->first, 128);
  EXPECT_GT(measured[128], measured[96]);
  EXPECT_GT(measured[96], measured[64]);
}

TEST(MultiScale, AResumedRunGoesOnWithTheSameSizes) {
  const fs::path folder = fresh_folder();
  const std::vector<Json> whole =
      train(folder / "whole", {"--max-steps", "8", "--noval"});
  train(folder / "parts", {"--max-steps", "3", "--noval"});
  const ProgramResult resumed =
      run_program({program("headroom"), "train", "--resume",
                   (folder / "parts" / kRun).string(), "--max-steps", "8"},
                  folder / "parts");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_steps(whole, read_lines(folder / "parts" / kRun / "steps.jsonl"));
}

TEST(MultiScale, ALostProcessChangesNoSize) {
  const fs::path folder = fresh_folder();
  const std::vector<std::string> flags = {"--processes", "2", "--max-steps",
                                          "6", "--noval"};
  const std::vector<Json> calm = train(folder / "calm", flags);
  std::vector<std::string> disturbed = flags;
  disturbed.insert(disturbed.end(),
                   {"--inject", "kill@rank=1,step=2,phase=vote"});
  const std::vector<Json> steps = train(folder / "disturbed", disturbed);
  expect_same_steps(calm, steps);
  ASSERT_FALSE(steps.empty());
  EXPECT_GT(steps.back().at("generation"), 1);
}

TEST(MultiScale, ImpossibleSizesAreRefused) {
  const fs::path folder = fresh_folder();
  for (const auto& [flags, words] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--rect"}, "--rect"},
           {{"--synthetic-input"}, "--synthetic-input"},
           {{"--layout", "spatial=2"},
            "--multi-scale resizes whole images, and the layout is"}}) {
    std::vector<std::string> more = {"--multi-scale"};
    more.insert(more.end(), flags.begin(), flags.end());
    const ProgramResult result = run_program(train_shapes("8", more), folder);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  }
}

}  // namespace
}  // namespace headroom::testing
