// A worker and the coordinator are lost together, and nobody restarts the
// coordinator. Workers that are left save the newest committed step if they
// hold all of its state, and the last line says what is saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "proto/channel_security.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* kRun = "runs/train/exp";

// The workers that are lost, and whether they are killed or hang forever.
struct Loss {
  std::string name;
  std::vector<std::string> layout;
  int workers = 2;
  std::vector<size_t> victims = {1};
  int signal = SIGKILL;
  // The time between the loss of the workers and the loss of the coordinator.
  int milliseconds = 300;
  bool is_saved = true;
};

void PrintTo(const Loss& loss, std::ostream* out) { *out << loss.name; }

class OrphanedRun : public ::testing::TestWithParam<Loss> {
 protected:
  void SetUp() override {
    folder_ = fresh_folder();
    setenv(wire::kTokenVariable, std::string(32, 't').c_str(), 1);
    const std::string address = "127.0.0.1:" + std::to_string(free_port());
    const std::string workers = std::to_string(GetParam().workers);
    std::vector<std::string> words =
        train_shapes("12", {"--epochs", "500", "--noval", "--nosave"});
    words = joined(words, GetParam().layout);
    words[1] = "coordinator";
    words = joined(words, {"--listen", address, "--expected-workers", workers});
    coordinator_ = begin("coordinator", words);
    agent_ = begin("agent", {program("headroom"), "agent", "--coordinator",
                             address, "--processes", workers});
  }
  void TearDown() override { unsetenv(wire::kTokenVariable); }

  // Starts the program in the test's folder, so that all programs see one run
  // folder.
  std::unique_ptr<Program> begin(const std::string& name,
                                 const std::vector<std::string>& command) {
    fs::create_directories(folder_ / name);
    return std::make_unique<Program>(
        joined({"env", "--chdir", folder_.string()}, command), folder_ / name);
  }

  // The lines of steps that were committed are kept, and training goes on from
  // the saved step.
  void expect_resumes(int64_t step) const {
    const auto before = read_lines(folder_ / kRun / "steps.jsonl");
    ASSERT_EQ(before.size(), static_cast<size_t>(step));
    const ProgramResult resumed = run_program(
        {program("headroom"), "train", "--resume", (folder_ / kRun).string(),
         "--max-steps", std::to_string(step + 2)},
        folder_);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    const auto after = read_lines(folder_ / kRun / "steps.jsonl");
    ASSERT_EQ(after.size(), before.size() + 2);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(after[i].at("step"), i);
      EXPECT_EQ(after[i].at("loss"), before[i].at("loss"));
    }
  }

  // The steps of complete checkpoints.
  std::vector<int64_t> checkpoints() const {
    std::vector<int64_t> steps;
    const fs::path folder = folder_ / kRun / "checkpoints";
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      EXPECT_EQ(name.rfind("step-", 0), 0u) << name << " is left behind";
      if (fs::exists(entry.path() / "MANIFEST.json")) {
        steps.push_back(std::stoll(name.substr(5)));
      }
    }
    return steps;
  }

  fs::path folder_;
  std::unique_ptr<Program> coordinator_, agent_;
};

TEST_P(OrphanedRun, WhatIsLeftIsSavedAndTheLastLineSaysSo) {
  const Loss& loss = GetParam();
  const fs::path log = folder_ / kRun / "steps.jsonl";
  ASSERT_TRUE(wait_for_lines(log, 4, 120));
  const std::vector<pid_t> workers =
      descendants(agent_->pid(), "headroom-worker");
  ASSERT_EQ(workers.size(), static_cast<size_t>(loss.workers));
  for (const size_t victim : loss.victims) {
    ::kill(workers[victim], loss.signal);
  }
  ::usleep(static_cast<useconds_t>(1000 * loss.milliseconds));
  coordinator_->signal(SIGKILL);
  const ProgramResult result = agent_->join();
  EXPECT_EQ(result.exit_code, 5) << result.err;
  const std::vector<int64_t> saved = checkpoints();
  std::string last = result.err;
  last.erase(last.find_last_not_of('\n') + 1);
  last.erase(0, last.rfind('\n') + 1);
  if (!loss.is_saved) {
    EXPECT_TRUE(saved.empty()) << result.err;
    EXPECT_THAT(last, HasSubstr("is not saved, and there is no checkpoint"))
        << result.err;
    return;
  }
  ASSERT_EQ(saved.size(), 1u) << result.err;
  EXPECT_THAT(last, HasSubstr("the state after " + std::to_string(saved[0]) +
                              " steps is saved"))
      << result.err;
  EXPECT_THAT(last, HasSubstr("headroom train --resume")) << result.err;
  expect_resumes(saved[0]);
}

std::vector<Loss> quick() {
  return {
      {"whole_state", {"--layout", "data=2"}},
      {"a_shard_and_its_copy", {"--layout", "data=2", "--zero", "3"}, 2, {0}},
      {"half_a_state",
       {"--layout", "data=3", "--zero", "1"},
       3,
       {1, 2},
       SIGKILL,
       300,
       /*is_saved=*/false}};
}

std::vector<Loss> slow() {
  return {
      {"rank_0", {"--layout", "data=2"}, 2, {0}},
      {"both_at_once", {"--layout", "data=2"}, 2, {1}, SIGKILL, 0},
      {"three_shards_of_four", {"--layout", "data=4", "--zero", "2"}, 4, {2}},
      {"first_stage", {"--layout", "pipeline=2"}, 2, {0}},
      // Rank 0 hangs with its machine, on which the coordinator is too.
      {"hanging_rank_0", {"--layout", "data=2"}, 2, {0}, SIGSTOP, 0},
      {"hanging_shard",
       {"--layout", "data=3", "--zero", "1"},
       3,
       {1},
       SIGSTOP,
       0}};
}

std::string name_of(const ::testing::TestParamInfo<Loss>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Quick, OrphanedRun, ::testing::ValuesIn(quick()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Slow, OrphanedRun, ::testing::ValuesIn(slow()),
                         name_of);

}  // namespace
}  // namespace headroom::testing
