#include "deploy/cli/args/run_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "parallel/base/folder_place.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TemporaryFolder;

configs::RunConfig config_in(const fs::path& project) {
  configs::RunConfig config;
  config.project = project.string();
  return config;
}

void make_resumable(const TemporaryFolder& root, const std::string& name) {
  root.write(name + "/run.yaml", "");
  fs::create_directories(root.path() / name / "checkpoints");
}

TEST(RunName, NumbersAsYolov5Does) {
  const TemporaryFolder root;
  const configs::RunConfig config = config_in(root.path());
  EXPECT_EQ(new_run_directory(config), root.path() / "exp");
  fs::create_directory(root.path() / "exp");
  EXPECT_EQ(new_run_directory(config), root.path() / "exp2");
  fs::create_directory(root.path() / "exp2");
  EXPECT_EQ(new_run_directory(config), root.path() / "exp3");
}

TEST(RunName, FindsANameWithoutMakingTheFolder) {
  const TemporaryFolder root;
  new_run_directory(config_in(root.path() / "not" / "there"));
  EXPECT_TRUE(fs::is_empty(root.path()));
}

TEST(RunName, ADanglingLinkIsTaken) {
  const TemporaryFolder root;
  fs::create_symlink("/nowhere/at/all", root.path() / "exp");
  EXPECT_EQ(new_run_directory(config_in(root.path())), root.path() / "exp2");
}

TEST(RunName, ExistOkUsesTheSameAgain) {
  const TemporaryFolder root;
  configs::RunConfig config = config_in(root.path());
  config.name = "mine";
  config.exist_ok = true;
  fs::create_directory(root.path() / "mine");
  EXPECT_EQ(new_run_directory(config), root.path() / "mine");
}

TEST(RunName, TheProjectFollowsTheCommand) {
  configs::RunConfig config;
  EXPECT_EQ(project_folder(config), fs::current_path() / "runs/train");
  config.command = "val";
  EXPECT_EQ(project_folder(config), fs::current_path() / "runs/val");
}

TEST(RunName, ResumeTakesTheNewestRunWithCheckpoints) {
  const TemporaryFolder root;
  make_resumable(root, "exp");
  make_resumable(root, "exp2");
  // This run ended before its first checkpoint.
  root.write("exp3/run.yaml", "");
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(root.path() / "exp/checkpoints", now);
  fs::last_write_time(root.path() / "exp2/checkpoints",
                      now - std::chrono::hours(1));
  EXPECT_EQ(run_directory_to_resume(root.path(), ""), root.path() / "exp");
  EXPECT_EQ(run_directory_to_resume(root.path(), root.path() / "exp2"),
            root.path() / "exp2");
}

TEST(RunName, ResumeRefusesAFolderThatHoldsNoRun) {
  const TemporaryFolder root;
  const auto refusal = [&](const std::string& given) {
    return testing::refusal_of(
        [&] { run_directory_to_resume(root.path(), given); });
  };
  EXPECT_EQ(refusal(""), "[resume] no run under " + root.path().string() +
                             " has a checkpoint: name the run: --resume DIR");
  EXPECT_EQ(refusal(root.path() / "gone"),
            "[resume] " + (root.path() / "gone").string() +
                " is no run to resume: it has no run.yaml or no checkpoints "
                "folder: give the folder of a run that saved a checkpoint");
}

TEST(RunName, AFileOfWeightsNamesItsRunAsInYolov5) {
  const TemporaryFolder root;
  make_resumable(root, "exp");
  for (const char* file : {"last.pt", "last.safetensors"}) {
    EXPECT_EQ(run_directory_to_resume(root.path(),
                                      root.path() / "exp/weights" / file),
              root.path() / "exp");
  }
}

TEST(RunName, AStateOnAnotherMachineIsNamedAndNotReplacedByAnOlderOne) {
  const TemporaryFolder root;
  const FolderPlace there = {"a1b2", "far-away", "far-away-7", 40};
  const fs::path run = root.path() / "exp";
  leave_note(run, there);
  const auto refusal = [&](const std::string& given) {
    return testing::refusal_of(
        [&] { run_directory_to_resume(root.path(), given); });
  };
  for (const std::string& given : {run.string(), std::string()}) {
    EXPECT_THAT(refusal(given), HasSubstr("after 40 steps, is on far-away"));
    EXPECT_THAT(refusal(given), Not(HasSubstr("remove")));
  }
  make_resumable(root, "exp");
  root.write("exp/checkpoints/step-30/MANIFEST.json", "{}");
  EXPECT_THAT(refusal(run.string()),
              HasSubstr("to go on from the older state here, after 30 steps, "
                        "remove " +
                        run.string() + "/.elsewhere"));
  // Brought here after the run went on there.
  root.write("exp/checkpoints/step-44/MANIFEST.json", "{}");
  EXPECT_EQ(run_directory_to_resume(root.path(), ""), run);
}

TEST(RunName, ARunThatIsNewerThanTheNoteOfAnotherIsTheNewest) {
  const TemporaryFolder root;
  leave_note(root.path() / "exp", {"a1b2", "far-away", "far-away-7", 40});
  make_resumable(root, "exp2");
  fs::last_write_time(
      root.path() / "exp2" / "checkpoints",
      fs::file_time_type::clock::now() + std::chrono::seconds(60));
  EXPECT_EQ(run_directory_to_resume(root.path(), ""), root.path() / "exp2");
}

}  // namespace
}  // namespace headroom::cli
