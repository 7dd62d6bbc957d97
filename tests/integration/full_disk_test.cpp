// If the disk is full for some time, only checkpoints fail: training continues,
// the old checkpoint is kept, each skipped checkpoint gives a warning, and
// checkpoints are written again once there is space.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
constexpr int kSteps = 100;
constexpr size_t kStepsInEpoch = 5;

std::vector<std::string> train(const fs::path& project) {
  return train_shapes(
      "8", {"--epochs", "40", "--noval", "--processes", "1", "--project",
            project.string(), "--name", "exp", "--max-steps",
            std::to_string(kSteps), "--set", "checkpoint_every_steps=2"});
}

std::string words(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += " '" + word + "'";
  return line;
}

int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(FullDisk, TrainingGoesOnAndTheOldCheckpointStays) {
  const fs::path folder = fresh_folder();
  const fs::path disk = folder / "disk", after = folder / "after";
  fs::create_directories(disk);
  if (::geteuid() != 0 ||
      run_program({"unshare", "-m", "sh", "-c",
                   "mount -t tmpfs none '" + disk.string() + "'"},
                  folder)
              .exit_code != 0) {
    GTEST_SKIP() << "needs root, who may mount a disk of a limited size";
  }
  // The disk exists only during the run; its files are copied at the end. After
  // the first checkpoint, the test fills the disk until three warnings have
  // been printed.
  const fs::path run = disk / "exp";
  const std::string script =
      "mount -t tmpfs -o size=140m none " + disk.string() + "\n" +
      words(train(disk)) + " 2>err.txt >out.txt &\n" +
      "while kill -0 $! && ! ls " + run.string() +
      "/checkpoints/step-*/MANIFEST.json; do sleep 0.01; done 2>&1 >seen.txt\n"
      "cat /dev/zero >" +
      disk.string() + "/other 2>>seen.txt\n" + "ls " + run.string() +
      "/checkpoints >full.txt\n" +
      "while kill -0 $! && [ $(grep -c 'steps is not written' err.txt) -lt 3 "
      "]; do sleep 0.01; done 2>>seen.txt\n" +
      "ls " + run.string() + "/checkpoints >still.txt\n" + "rm " +
      disk.string() + "/other\n" + "wait $!; code=$?; cp -r " + run.string() +
      " " + after.string() + "; cat err.txt >&2; exit $code\n";
  std::ofstream(folder / "script.sh") << script;
  const ProgramResult result = run_program(
      {"unshare", "-m", "sh", (folder / "script.sh").string()}, folder);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GE(occurrences(result.err, "steps is not written: "), 3) << result.err;
  EXPECT_GE(occurrences(result.err, "training goes on, the newest is that "), 3)
      << result.err;

  // The lines are complete, each step occurs once, and the losses are those of
  // a run with enough space.
  const ProgramResult calm = run_program(train(folder / "calm"), folder);
  ASSERT_EQ(calm.exit_code, 0) << calm.err;
  const auto expected = read_lines(folder / "calm/exp/steps.jsonl");
  const auto steps = read_lines(after / "steps.jsonl");
  ASSERT_EQ(steps.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(expected.size(), steps.size());
  for (size_t step = 0; step < steps.size(); ++step) {
    EXPECT_EQ(steps[step].at("step"), step);
    EXPECT_EQ(steps[step].at("loss"), expected[step].at("loss"));
  }
  const Json counts = read_json(after / "summary.json").at("checkpoints");
  EXPECT_EQ(counts.at("failed"),
            occurrences(result.err, "steps is not written: "));
  EXPECT_GT(counts.at("bytes").get<int64_t>(), 0);
  EXPECT_EQ(counts.at("written").get<int>() + counts.at("failed").get<int>() +
                counts.at("skipped").get<int>(),
            kSteps / 2 + kSteps / 10);  // plus epochs that end at an odd step

  // Every warning is recorded, including those that could be written only
  // later.
  int warnings = 0;
  for (const Json& event : read_lines(after / "events.jsonl")) {
    if (event.at("event") != "checkpoint") continue;
    const auto reason = event.at("reason").get<std::string>();
    warnings += occurrences(reason, "steps is not written: ");
  }
  EXPECT_EQ(counts.at("failed"), warnings);

  // There is no partial checkpoint, but two finished ones at the end.
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(after / "checkpoints")) {
    names.push_back(entry.path().filename().string());
    EXPECT_TRUE(fs::exists(entry.path() / "MANIFEST.json")) << names.back();
  }
  EXPECT_EQ(names.size(), 2u);
  EXPECT_TRUE(
      fs::exists(after / "checkpoints" / ("step-" + std::to_string(kSteps))));
}

// The other rank has the state in memory and needs no disk space for it. When
// an unfinished checkpoint is deleted, the test fills its space at once, so
// that the new rank 0 finds no space.
TEST(FullDisk, ALostRankZeroIsReplaced) {
  const fs::path folder = fresh_folder();
  const fs::path disk = folder / "disk";
  fs::create_directories(disk);
  if (::geteuid() != 0 ||
      run_program({"unshare", "-m", "sh", "-c",
                   "mount -t tmpfs none '" + disk.string() + "'"},
                  folder)
              .exit_code != 0) {
    GTEST_SKIP() << "needs root, who may mount a disk of a limited size";
  }
  const fs::path run = disk / "exp";
  const std::string script =
      "mount -t tmpfs -o size=140m none " + disk.string() + "\n" +
      words(train_shapes(
          "8", {"--epochs", "9", "--noval", "--processes", "2", "--project",
                disk.string(), "--inject",
                "pause@rank=0,step=7,seconds=4;kill@rank=0,step=8"})) +
      " 2>err.txt >out.txt &\n" + "while kill -0 $! && ! grep -q step.:6 " +
      run.string() + "/steps.jsonl; do sleep 0.01; done 2>seen.txt\n" +
      "while kill -0 $! && ! grep -q 'after 15 steps is not written' err.txt; "
      "do cat /dev/zero >>" +
      disk.string() + "/other; sleep 0.01; done 2>>seen.txt\nrm " +
      disk.string() + "/other\n" + "wait $!; code=$?; cp -r " + run.string() +
      " after; cat err.txt >&2; exit $code\n";
  std::ofstream(folder / "script.sh") << script;
  const ProgramResult result = run_program(
      {"unshare", "-m", "sh", (folder / "script.sh").string()}, folder);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto steps = read_lines(folder / "after/steps.jsonl");
  ASSERT_EQ(steps.size(), 45u);
  for (size_t step = 0; step < steps.size(); ++step) {
    EXPECT_EQ(steps[step].at("step"), step);
  }
  EXPECT_EQ(steps.back().at("generation"), 2);
}

// The run's folder is unreachable for 3 s, as on a network file system whose
// server restarts (tests/support/failing_folder): either at the normal end of
// the run, or while a signal ends it.
class FolderAway : public ::testing::TestWithParam<bool> {};

TEST_P(FolderAway, TheStateIsSavedWhenItIsBack) {
  const bool is_signalled = GetParam();
  const fs::path folder = fresh_folder();
  const fs::path away = folder / "away", project = folder / "runs";
  const std::string steps = is_signalled ? "500" : "30";
  Program run(
      joined({"env",
              "LD_PRELOAD=" HEADROOM_BUILD_DIR
              "/tests/libheadroom_failing_folder.so",
              "HEADROOM_FAILING_FOLDER=" + project.string(),
              "HEADROOM_FAILING_WHILE=" + away.string()},
             train_shapes("8", {"--epochs", "90", "--noval", "--processes", "1",
                                "--project", project.string(), "--name", "exp",
                                "--max-steps", steps})),
      folder);
  ASSERT_TRUE(wait_for_lines(project / "exp/steps.jsonl", 20, 120));
  std::ofstream(away.string()).put('x');
  if (is_signalled) run.signal(SIGTERM);
  ::usleep(3'000'000);
  fs::remove(away);
  const ProgramResult result = run.join();
  EXPECT_EQ(result.exit_code, is_signalled ? 130 : 0) << result.err;
  EXPECT_NE(result.err.find("waiting up to 20 s for it"), std::string::npos)
      << result.err;
  const auto lines = read_lines(project / "exp/steps.jsonl");
  for (size_t step = 0; step < lines.size(); ++step) {
    EXPECT_EQ(lines[step].at("step"), step);
  }
  // Each finished epoch has its row, including those that ended while the
  // folder was unreachable.
  const std::string rows = text_of(project / "exp/results.csv");
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(rows, '\n')),
            1 + lines.size() / kStepsInEpoch)
      << rows;
  EXPECT_TRUE(fs::exists(project / "exp/checkpoints" /
                         ("step-" + std::to_string(lines.size())) /
                         "MANIFEST.json"))
      << result.err;
}

INSTANTIATE_TEST_SUITE_P(FullDisk, FolderAway, ::testing::Values(false, true),
                         [](const auto& info) {
                           return info.param ? "a_signal" : "the_end";
                         });

}  // namespace
}  // namespace headroom::testing
