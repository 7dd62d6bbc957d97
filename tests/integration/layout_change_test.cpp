// A checkpoint does not depend on the layout: a stopped run continues under
// another layout, and its next step equals the step of one process from the
// same state.
//
// The suite named Slow runs with the label `slow`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
constexpr const char* kRun = "runs/train/exp";

// Resumes the run in `folder` until it has `steps` steps; returns its steps.
std::vector<Json> resume_until(const fs::path& folder,
                               std::vector<std::string> layout, size_t steps) {
  std::vector<std::string> more = {"--resume", (folder / kRun).string(),
                                   "--max-steps", std::to_string(steps)};
  more.insert(more.end(), layout.begin(), layout.end());
  return train_in(folder, {program("headroom"), "train"}, more);
}

class LayoutChange : public ::testing::TestWithParam<std::string> {};

TEST_P(LayoutChange, TheNextStepIsThatOfOneProcessFromTheSameState) {
  const std::vector<std::string> alone = {"--layout", "data=1", "--processes",
                                          "1",        "--zero", "0"};
  const std::vector<std::vector<std::string>> layouts = {
      {"--layout", "data=2", "--processes", "2"},
      {"--layout", "pipeline=2", "--processes", "2"},
      {"--layout", "spatial=2", "--processes", "2"},
      {"--layout", "data=2", "--processes", "2", "--zero", "3"},
      alone,
  };
  const fs::path folder = fresh_folder();
  const fs::path changing = folder / "changing";
  // The checkpoint is written within an epoch, while gradients are accumulated.
  size_t steps = 3;
  std::vector<std::string> first = layouts[0];
  first.insert(first.end(),
               {"--max-steps", std::to_string(steps), "--cfg", GetParam()});
  ASSERT_EQ(train_in(changing, train_fp64("8"), first).size(), steps);
  for (size_t i = 1; i < layouts.size(); ++i) {
    SCOPED_TRACE(layouts[i][1]);
    const fs::path reference = folder / ("reference" + std::to_string(i));
    fs::copy(changing, reference, fs::copy_options::recursive);
    ++steps;
    const auto one = resume_until(reference, alone, steps);
    const auto other = resume_until(changing, layouts[i], steps);
    ASSERT_EQ(one.size(), steps);
    ASSERT_EQ(other.size(), steps);
    for (const char* key : {"loss", "box", "obj", "cls", "dfl", "grad_norm"}) {
      if (!one.back().contains(key)) continue;
      EXPECT_LT(relative(one.back(), other.back(), key), 1e-9) << key;
    }
    EXPECT_EQ(one.back().at("samples"), other.back().at("samples"));
    EXPECT_EQ(one.back().at("lr"), other.back().at("lr"));
    EXPECT_EQ(other.back().at("memory").size(), layouts[i] == alone ? 1u : 2u);
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, LayoutChange,
                         ::testing::Values("yolov5n", "yolov5nu", "yolov8n"),
                         [](const auto& network) { return network.param; });

// The checkpoint is that of a run whose state was sharded over two ranks, and
// is written in the background. The next step is within 1e-9 of the original
// run's, and 20 steps are within 1e-6.
TEST(Slow, ARunUnderZero3GoesOnUnderAnyOtherLayout) {
  constexpr size_t kSaved = 3, kSteps = kSaved + 21;
  const std::vector<std::string> calm = {
      "--set", "hyp.lr0=1e-5",        "--set", "hyp.lrf=1",
      "--set", "hyp.warmup_epochs=0", "--set", "checkpoint_every_steps=3"};
  const std::vector<std::string> zero_3 = {"--layout", "data=2", "--processes",
                                           "2",        "--zero", "3"};
  const std::vector<std::vector<std::string>> others = {
      {"--layout", "pipeline=2", "--processes", "2", "--zero", "0"},
      {"--layout", "spatial=2", "--processes", "2", "--zero", "0"},
      {"--layout", "data=1", "--processes", "1", "--zero", "0"},
      {"--layout", "data=3", "--processes", "3", "--zero", "1"}};
  const fs::path folder = fresh_folder();
  const fs::path whole = folder / "whole";
  std::vector<std::string> first = zero_3;
  first.insert(first.end(), calm.begin(), calm.end());
  first.insert(first.end(), {"--max-steps", "4"});
  ASSERT_EQ(train_in(whole, train_fp64("8"), first).size(), 4u);
  // The checkpoint of the run's end is removed, because the earlier one is
  // tested.
  fs::remove_all(whole / kRun / "checkpoints/step-4");
  for (size_t i = 0; i < others.size(); ++i) {
    fs::copy(whole, folder / std::to_string(i), fs::copy_options::recursive);
  }
  const auto expected = resume_until(whole, zero_3, kSteps);
  ASSERT_EQ(expected.size(), kSteps);
  std::printf("data 2, ZeRO 3 -> %-12s next step %-9s 20 steps\n", "", "");
  for (size_t i = 0; i < others.size(); ++i) {
    SCOPED_TRACE(others[i][1]);
    const auto steps =
        resume_until(folder / std::to_string(i), others[i], kSteps);
    ASSERT_EQ(steps.size(), kSteps);
    double next = 0, most = 0;
    for (size_t step = 0; step < kSteps; ++step) {
      EXPECT_EQ(steps[step].at("step"), step);
      EXPECT_EQ(steps[step].at("samples"), expected[step].at("samples"));
      for (const char* key : {"loss", "box", "obj", "cls", "grad_norm"}) {
        const double off = relative(expected[step], steps[step], key);
        most = std::max(most, off);
        if (step == kSaved) next = std::max(next, off);
      }
    }
    std::printf("                  %-12s %-19.1e %.1e\n", others[i][1].c_str(),
                next, most);
    EXPECT_LT(next, 1e-9);
    EXPECT_LT(most, 1e-6);
  }
}

}  // namespace
}  // namespace headroom::testing
