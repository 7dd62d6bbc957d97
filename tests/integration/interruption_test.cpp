// Ctrl-C: the run ends at a committed step and prints the resume command, and
// resuming loses nothing. After lost processes the run recovers by itself.
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

std::vector<std::string> long_run(const std::vector<std::string>& layout = {
                                      "--processes", "2"}) {
  std::vector<std::string> command =
      train_shapes("8", {"--epochs", "500", "--noval"});
  command.insert(command.end(), layout.begin(), layout.end());
  return command;
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
  const ProgramResult ledger = run_program(
      {program("headroom"), "status", (folder / kRun).string(), "--ledger"},
      folder);
  EXPECT_EQ(ledger.exit_code, 0) << ledger.out << ledger.err;
}

struct Layout {
  std::string name;
  std::vector<std::string> flags;
};

class CtrlC : public ::testing::TestWithParam<Layout> {};

TEST_P(CtrlC, EndsAtACommittedStep) {
  const fs::path folder = fresh_folder();
  Program run(long_run(GetParam().flags), folder);
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

// The interrupts come in the first epoch, during a long step: there is no
// checkpoint yet, so the workers write one before the command returns.
TEST(CtrlCTwice, SavesTheNewestStepAndPrintsTheResumeCommand) {
  const fs::path folder = fresh_folder();
  std::vector<std::string> command =
      long_run({"--layout", "pipeline=2", "--batch", "32", "--img", "160"});
  Program run(command, folder);
  ASSERT_TRUE(wait_for_lines(folder / kRun / "steps.jsonl", 1, 60));
  run.signal(SIGINT);
  ::usleep(100'000);
  run.signal(SIGINT);
  const ProgramResult result = run.join();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_NE(result.err.find("stopped at once"), std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("headroom train --resume"), std::string::npos)
      << result.err;
  EXPECT_FALSE(fs::is_empty(folder / kRun / "checkpoints"));
  expect_resumes(folder);
}

INSTANTIATE_TEST_SUITE_P(
    Interruption, CtrlC,
    ::testing::Values(Layout{"data2", {"--processes", "2"}},
                      Layout{"pipeline2", {"--layout", "pipeline=2"}}),
    [](const auto& info) { return info.param.name; });

struct LostWorker {
  std::string name;
  std::vector<std::string> flags;
  size_t victim;
  size_t workers;
};

class Lost : public ::testing::TestWithParam<LostWorker> {};

// The process is killed from outside at any moment, and a successor takes its
// place.
TEST_P(Lost, TheRunGoesOnAndEverySampleIsUsedOnce) {
  const LostWorker& lost = GetParam();
  const fs::path folder = fresh_folder();
  const fs::path log = folder / kRun / "steps.jsonl";
  Program run(long_run(lost.flags), folder);
  ASSERT_TRUE(wait_for_lines(log, 4, 120));
  const std::vector<pid_t> workers = descendants(run.pid(), "headroom-worker");
  ASSERT_EQ(workers.size(), lost.workers);
  ::kill(workers[lost.victim], SIGKILL);
  ASSERT_TRUE(wait_for_lines(log, read_lines(log).size() + 4, 60));
  EXPECT_EQ(read_lines(log).back().at("generation"), 2);
  run.signal(SIGINT);
  const ProgramResult result = run.join();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  expect_resumes(folder);
}

INSTANTIATE_TEST_SUITE_P(
    Interruption, Lost,
    ::testing::Values(
        LostWorker{"rank_0", {"--processes", "2"}, 0, 2},
        LostWorker{"rank_1", {"--processes", "2"}, 1, 2},
        // Only a buddy has a copy of these parts of the state.
        LostWorker{"last_stage", {"--layout", "pipeline=2"}, 1, 2},
        LostWorker{"shard", {"--layout", "data=2", "--zero", "3"}, 0, 2},
        // Ranks 1 and 2 exchange tensors with the lost rank; rank 0 exchanges
        // tensors only with ranks 1 and 2.
        LostWorker{
            "not_a_neighbour_of_all", {"--layout", "data=2,pipeline=2"}, 3, 4}),
    [](const auto& info) { return info.param.name; });

// The coordinator is killed twice in the middle of the training. Its successors
// take over, and no other process is disturbed.
TEST(Interruption, AKilledCoordinatorChangesNoLoss) {
  const fs::path folder = fresh_folder();
  std::vector<std::string> command = train_shapes(
      "8", {"--processes", "2", "--epochs", "2", "--precision", "fp64"});
  const ProgramResult calm = run_program(command, folder);
  ASSERT_EQ(calm.exit_code, 0) << calm.err;
  const auto expected = read_lines(folder / kRun / "steps.jsonl");
  const fs::path disturbed = folder / "disturbed";
  fs::create_directories(disturbed);
  Program run(command, disturbed);
  for (const size_t after : {2, 6}) {
    ASSERT_TRUE(wait_for_lines(disturbed / kRun / "steps.jsonl", after, 60));
    const std::vector<pid_t> victims = descendants(run.pid(), "--config-fd");
    ASSERT_EQ(victims.size(), 1u);
    ::kill(victims[0], SIGKILL);
  }
  const ProgramResult result = run.join();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = read_lines(disturbed / kRun / "steps.jsonl");
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t step = 0; step < lines.size(); ++step) {
    EXPECT_EQ(lines[step].at("loss"), expected[step].at("loss")) << step;
    EXPECT_EQ(lines[step].at("generation"), 1) << step;
  }
  int64_t restarts = 0, generations = 0, checkpoints = 0, ends = 0;
  for (const Json& event : read_lines(disturbed / kRun / "events.jsonl")) {
    restarts += event.at("event") == "coordinator_restart";
    generations += event.at("event") == "generation";
    checkpoints += event.at("event") == "checkpoint";
    ends += event.at("event") == "run_over";
  }
  EXPECT_EQ(restarts, 2);
  EXPECT_EQ(generations, 1);
  EXPECT_EQ(checkpoints, 2);
  EXPECT_EQ(ends, 1);
  const ProgramResult ledger = run_program(
      {program("headroom"), "status", (disturbed / kRun).string(), "--ledger"},
      disturbed);
  EXPECT_EQ(ledger.exit_code, 0) << ledger.out << ledger.err;
}

TEST(Interruption, NoProcessIsLeftBehindWhenTheSupervisorIsKilled) {
  const fs::path folder = fresh_folder();
  std::vector<pid_t> all;
  {
    Program run(long_run(), folder);
    ASSERT_TRUE(wait_for_lines(folder / kRun / "steps.jsonl", 2, 60));
    all = descendants(run.pid(), "headroom");
    EXPECT_GE(all.size(), 4u);  // coordinator, agent, two workers
  }                             // the Program's destructor sends SIGKILL
  for (int tries = 0; tries < 100; ++tries) {
    bool any = false;
    for (const pid_t pid : all) any |= ::kill(pid, 0) == 0;
    if (!any) return;
    ::usleep(100'000);
  }
  for (const pid_t pid : all) EXPECT_NE(::kill(pid, 0), 0) << pid;
}

// Ctrl-Z, after which the test waits until all processes are stopped.
class Stopped : public ::testing::TestWithParam<std::string> {};

TEST_P(Stopped, AnInterruptAfterTheLastStepIsStillASuccess) {
  const fs::path folder = fresh_folder();
  Program run(train_shapes("8", {"--epochs", "4", "--noval", "--noplots"}),
              folder);
  ASSERT_TRUE(wait_for_lines(folder / kRun / "steps.jsonl", 2, 60));
  pid_t stopped = run.pid();
  if (!GetParam().empty()) {
    stopped = descendants(run.pid(), GetParam()).at(0);
  }
  ::kill(stopped, SIGSTOP);
  for (int i = 0; i < 600; ++i) {
    const std::string text = text_of(folder / kRun / "summary.json");
    if (text.find("all 20 steps done") != std::string::npos) break;
    ::usleep(100'000);
  }
  ::usleep(5'000'000);
  ::kill(stopped, SIGCONT);
  const ProgramResult result = run.join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("all 20 steps done"), std::string::npos)
      << result.out;
}

// Stops the coordinator (SIGSTOP) for `seconds` while the workers train.
// REQUIRES: the run has begun.
void stop_coordinator(const Program& run, int seconds) {
  const pid_t coordinator = descendants(run.pid(), "--config-fd").at(0);
  ::kill(coordinator, SIGSTOP);
  ::sleep(static_cast<unsigned>(seconds));
  ::kill(coordinator, SIGCONT);
}

// Each coordinator dies within a second, so that none lives long enough to
// report a step.
TEST(Slow, ACoordinatorMayDieManyTimesIfThereAreStepsBetween) {
  const fs::path folder = fresh_folder();
  const fs::path log = folder / kRun / "steps.jsonl";
  Program run(long_run(), folder);
  size_t lines = 4;
  for (int death = 0; death < 7; ++death) {
    ASSERT_TRUE(wait_for_lines(log, lines, 120)) << death;
    std::vector<pid_t> coordinators;
    for (int i = 0; i < 500 && coordinators.empty(); ++i) {
      coordinators = descendants(run.pid(), "--config-fd");
      ::usleep(10'000);
    }
    ASSERT_FALSE(coordinators.empty()) << death;
    ::kill(coordinators.front(), SIGKILL);
    lines = read_lines(log).size() + 1;
  }
  ASSERT_TRUE(wait_for_lines(log, lines + 4, 60));
  run.signal(SIGINT);
  const ProgramResult result = run.join();
  EXPECT_EQ(result.exit_code, 130) << result.err;
}

// The pause is longer than the time for which clients wait for a reply on their
// connections.
TEST(PausedCoordinator, LosesNoWorker) {
  const fs::path folder = fresh_folder();
  const fs::path log = folder / kRun / "steps.jsonl";
  Program run(long_run(), folder);
  ASSERT_TRUE(wait_for_lines(log, 4, 120));
  stop_coordinator(run, 12);
  ::sleep(4);
  ASSERT_TRUE(wait_for_lines(log, read_lines(log).size() + 4, 60));
  run.signal(SIGINT);
  const ProgramResult result = run.join();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  for (const Json& line : read_lines(log)) {
    ASSERT_EQ(line.at("generation"), 1) << result.err;
  }
  EXPECT_NE(result.err.find("stood still"), std::string::npos) << result.err;
  expect_resumes(folder);
}

// The pause is longer than the time for which agents wait: their workers save,
// and the run can be resumed.
TEST(Slow, ACoordinatorPausedForTooLongEndsTheRunWithASavedState) {
  const fs::path folder = fresh_folder();
  std::vector<std::string> command = long_run();
  command.emplace_back("--nosave");
  Program run(command, folder);
  ASSERT_TRUE(wait_for_lines(folder / kRun / "steps.jsonl", 4, 120));
  stop_coordinator(run, 60);
  const ProgramResult result = run.join();
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_NE(result.err.find("train --resume"), std::string::npos) << result.err;
  const auto lines = read_lines(folder / kRun / "steps.jsonl");
  EXPECT_TRUE(fs::exists(folder / kRun / "checkpoints" /
                         ("step-" + std::to_string(lines.size())) /
                         "MANIFEST.json"))
      << lines.size() << result.err;
  expect_resumes(folder);
}

INSTANTIATE_TEST_SUITE_P(Interruption, Stopped,
                         ::testing::Values("", "--config-fd"),
                         [](const auto& info) {
                           return info.param.empty() ? "supervisor"
                                                     : "coordinator";
                         });

}  // namespace
}  // namespace headroom::testing
