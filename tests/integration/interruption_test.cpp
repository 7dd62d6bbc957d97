// Ctrl-C and lost processes: the run ends at a committed step, says how to go
// on, and going on loses nothing.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
constexpr const char* kRun = "runs/train/exp";

std::vector<std::string> long_run() {
  return {program("headroom"),
          "train",
          "--data",
          shapes_data(),
          "--cfg",
          "yolov5n",
          "--img",
          "96",
          "--batch",
          "8",
          "--epochs",
          "500",
          "--threads",
          "1",
          "--workers",
          "1",
          "--processes",
          "2",
          "--noval"};
}

void expect_resumes(const fs::path& folder) {
  const auto before = read_lines(folder / kRun / "steps.jsonl");
  const ProgramResult resumed = run_program(
      {program("headroom"), "train", "--resume", (folder / kRun).string(),
       "--max-steps", std::to_string(before.size() + 2)},
      folder);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  const auto after = read_lines(folder / kRun / "steps.jsonl");
  ASSERT_EQ(after.size(), before.size() + 2);
  for (size_t step = 0; step < after.size(); ++step) {
    EXPECT_EQ(after[step].at("step"), step);
  }
  for (size_t step = 0; step < before.size(); ++step) {
    EXPECT_EQ(after[step].at("loss"), before[step].at("loss"));
  }
}

TEST(Interruption, CtrlCEndsAtACommittedStep) {
  const fs::path folder = fresh_folder();
  Program run(long_run(), folder);
  ASSERT_TRUE(wait_for_lines(folder / kRun / "steps.jsonl", 4, 60));
  run.signal(SIGINT);
  const ProgramResult result = run.join();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_NE(result.err.find("--resume"), std::string::npos) << result.err;
  const auto lines = read_lines(folder / kRun / "steps.jsonl");
  EXPECT_TRUE(fs::exists(folder / kRun / "checkpoints" /
                         ("step-" + std::to_string(lines.size())) /
                         "MANIFEST.json"));
  expect_resumes(folder);
}

class LostWorker : public ::testing::TestWithParam<int> {};

TEST_P(LostWorker, EndsTheRunAtACommittedStepWithItsLastState) {
  const fs::path folder = fresh_folder();
  Program run(long_run(), folder);
  ASSERT_TRUE(wait_for_lines(folder / kRun / "steps.jsonl", 4, 60));
  const std::vector<pid_t> workers = descendants(run.pid(), "headroom-worker");
  ASSERT_EQ(workers.size(), 2u);
  ::kill(workers[GetParam()], SIGKILL);
  const ProgramResult result = run.join();
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_NE(result.err.find("--resume"), std::string::npos) << result.err;
  EXPECT_LT(result.seconds, 90);
  expect_resumes(folder);
}

INSTANTIATE_TEST_SUITE_P(EitherRank, LostWorker, ::testing::Values(0, 1));

TEST(Interruption, NoProcessIsLeftBehindWhenTheSupervisorIsKilled) {
  const fs::path folder = fresh_folder();
  std::vector<pid_t> all;
  {
    Program run(long_run(), folder);
    ASSERT_TRUE(wait_for_lines(folder / kRun / "steps.jsonl", 2, 60));
    all = descendants(run.pid(), "headroom");
    EXPECT_GE(all.size(), 4u);  // coordinator, agent, two workers
  }                             // SIGKILL
  for (int tries = 0; tries < 100; ++tries) {
    bool any = false;
    for (const pid_t pid : all) any |= ::kill(pid, 0) == 0;
    if (!any) return;
    ::usleep(100'000);
  }
  for (const pid_t pid : all) EXPECT_NE(::kill(pid, 0), 0) << pid;
}

}  // namespace
}  // namespace headroom::testing
