// A worker is killed under mpirun: the run completes, and mpirun returns 0.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRun = "runs/train/exp";

class Mpirun : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder();
    const ProgramResult there = run_program({"mpirun", "--version"}, folder_);
    if (there.exit_code != 0) GTEST_SKIP() << "no mpirun here";
  }

  // The command of mpirun with two agents, each with one worker, and the flags
  // of the run.
  std::vector<std::string> job(std::vector<std::string> run) const {
    std::vector<std::string> words = {"mpirun", "-np", "2", "--oversubscribe",
                                      "--allow-run-as-root"};
    words.insert(words.end(), run.begin(), run.end());
    return words;
  }

  static std::vector<std::string> training(
      const std::vector<std::string>& more) {
    std::vector<std::string> words = train_fp64("8");
    words.insert(words.end(), {"--max-steps", "10"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  fs::path folder_;
};

class LostUnderMpirun : public Mpirun,
                        public ::testing::WithParamInterface<size_t> {};

TEST_P(LostUnderMpirun, AWorkerIsStartedAgainAndTheRunCompletes) {
  const std::vector<Json> expected =
      train_in(folder_ / "undisturbed", training({"--processes", "2"}), {});
  Program run(job(training({})), folder_);
  const fs::path log = folder_ / kRun / "steps.jsonl";
  ASSERT_TRUE(wait_for_lines(log, 4, 120));
  const std::vector<pid_t> workers = descendants(run.pid(), "headroom-worker");
  ASSERT_EQ(workers.size(), 2u);
  ::kill(workers[GetParam()], SIGKILL);
  const ProgramResult result = run.join();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> steps = read_lines(log);
  ASSERT_EQ(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("loss"), expected[i].at("loss")) << i;
    EXPECT_EQ(steps[i].at("samples"), expected[i].at("samples")) << i;
  }
  EXPECT_EQ(steps.back().at("generation"), 2);
  if (::sysconf(_SC_NPROCESSORS_ONLN) > 1) {
    EXPECT_NE(result.err.find("bound its processes to 1 of"), std::string::npos)
        << result.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Mpirun, LostUnderMpirun, ::testing::Values(0u, 1u),
                         [](const auto& info) {
                           return "worker_" + std::to_string(info.param);
                         });

std::set<std::string> ours_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.find("headroom") != std::string::npos) names.insert(name);
  }
  return names;
}

// Only the launcher gets SIGKILL. Files that Open MPI itself leaves are not
// checked.
TEST_F(Mpirun, ALostLauncherEndsTheRunWithItsStateSaved) {
  std::vector<pid_t> all;
  {
    const Program run(job(training({"--max-steps", "100000", "--epochs",
                                    "20000", "--noval"})),
                      folder_);
    ASSERT_TRUE(wait_for_lines(folder_ / kRun / "steps.jsonl", 4, 120));
    all = descendants(run.pid(), "headroom");
    EXPECT_GE(all.size(), 6u);
  }  // the Program's destructor sends SIGKILL
  const auto is_gone = [](pid_t pid) { return ::kill(pid, 0) != 0; };
  for (int tries = 0; tries < 300; ++tries) {
    if (std::all_of(all.begin(), all.end(), is_gone)) break;
    ::usleep(100'000);
  }
  EXPECT_TRUE(std::all_of(all.begin(), all.end(), is_gone));
  const size_t steps = read_lines(folder_ / kRun / "steps.jsonl").size();
  EXPECT_TRUE(fs::exists(folder_ / kRun / "checkpoints" /
                         ("step-" + std::to_string(steps)) / "MANIFEST.json"));
}

class AllKilled : public Mpirun {
 protected:
  void TearDown() override { ::unsetenv("TMPDIR"); }
};

TEST_F(AllKilled, TheNextStartRemovesLeftoverFiles) {
  const fs::path temporary = folder_ / "tmp";
  fs::create_directories(temporary);
  ::setenv("TMPDIR", temporary.c_str(), 1);
  const std::set<std::string> shared_memory = ours_in("/dev/shm");
  {
    const Program run(job(training({})), folder_);
    ASSERT_TRUE(wait_for_lines(folder_ / kRun / "steps.jsonl", 2, 120));
    for (const pid_t pid : descendants(run.pid(), "headroom")) {
      ::kill(pid, SIGKILL);
    }
  }
  EXPECT_FALSE(ours_in(temporary).empty()) << "then this test shows nothing";
  EXPECT_EQ(ours_in("/dev/shm"), shared_memory);
  std::vector<std::string> words = training({});
  words.insert(words.end(), {"--name", "next"});
  const ProgramResult next = run_program(job(words), folder_);
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_EQ(ours_in(temporary), std::set<std::string>{});
  EXPECT_EQ(ours_in("/dev/shm"), shared_memory);
}

}  // namespace
}  // namespace headroom::testing
