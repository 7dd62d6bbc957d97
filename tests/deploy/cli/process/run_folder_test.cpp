#include "deploy/cli/process/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <optional>

#include "coordinator/log/write_ahead_log.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::string refusal(const fs::path& folder) {
  return testing::refusal_of([&] { const RunFolder taken(folder, true); });
}

TEST(RunFolder, ATakenFolderIsNotGivenTwice) {
  const TemporaryFolder parent;
  const RunFolder first(parent.path() / "runs/exp", false);
  const RunFolder second(parent.path() / "runs/exp", false);
  EXPECT_EQ(first.path(), parent.path() / "runs/exp");
  EXPECT_EQ(second.path(), parent.path() / "runs/exp2");
}

TEST(RunFolder, AnUnusedFolderIsRemoved) {
  const TemporaryFolder parent;
  {
    const RunFolder folder(parent.path() / "runs/train/exp", false);
    std::ofstream(folder.log_file()) << "HEADRWAL";
  }
  EXPECT_FALSE(fs::exists(parent.path() / "runs"));
  {
    const RunFolder folder(parent.path() / "runs/train/exp", false);
    std::ofstream(folder.path() / "run.yaml") << "epochs: 3\n";
  }
  EXPECT_TRUE(fs::exists(parent.path() / "runs/train/exp/run.yaml"));
}

TEST(RunFolder, AFolderOfTheUsersStaysWithAllThatIsInIt) {
  const TemporaryFolder parent;
  parent.write("exp/notes.txt", "mine");
  fs::create_directories(parent.path() / "empty");
  {
    const RunFolder folder(parent.path() / "exp", true);
    const RunFolder empty(parent.path() / "empty", true);
  }
  EXPECT_EQ(parent.read("exp/notes.txt"), "mine");
  EXPECT_TRUE(fs::exists(parent.path() / "empty"));
  parent.write("exp/coordinator.log", "of a robot");
  EXPECT_THAT(refusal(parent.path() / "exp"),
              HasSubstr("coordinator.log is no log of a coordinator"));
  EXPECT_EQ(parent.read("exp/coordinator.log"), "of a robot");
}

// Opening a pipe would wait for its other end.
TEST(RunFolder, APipeOrALinkInPlaceOfTheLogIsRefused) {
  const TemporaryFolder parent;
  const fs::path run = parent.folder("exp");
  const fs::path log = run / "coordinator.log";
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  EXPECT_THAT(refusal(run), HasSubstr("coordinator.log is no log of a"));
  fs::remove(log);
  parent.write("other", "HEADRWAL");
  fs::create_symlink("../other", log);
  EXPECT_THAT(refusal(run), HasSubstr("coordinator.log is no log of a"));
  EXPECT_EQ(parent.read("other"), "HEADRWAL");
}

// A later run would otherwise continue from the killed run's log.
TEST(RunFolder, TheLogOfAKilledRunGoesAndThatOfARunningOneStays) {
  const TemporaryFolder parent;
  const fs::path run = parent.path() / "exp";
  fs::create_directories(run);
  std::vector<std::string> records;
  auto log =
      coordinator::WriteAheadLog::open(run / "coordinator.log", &records);
  log->append("a decision");
  log->sync();
  EXPECT_THAT(refusal(run), HasSubstr("is being written by another run"));
  struct stat about {};
  ASSERT_EQ(stat((run / "coordinator.log").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  log.reset();
  const RunFolder next(run, true);
  EXPECT_FALSE(fs::exists(next.log_file()));
  records.clear();
  EXPECT_NO_THROW(coordinator::WriteAheadLog::open(next.log_file(), &records));
  EXPECT_EQ(records.size(), 0u);
}

// The next run may begin in the folder while the earlier one still ends.
TEST(RunFolder, AnEndingRunLeavesTheLogOfTheNextOne) {
  const TemporaryFolder parent;
  const fs::path file = parent.path() / "coordinator.log";
  std::vector<std::string> records;
  auto log = coordinator::WriteAheadLog::open(file, &records);
  remove_run_log(file);
  EXPECT_TRUE(log->leads_here());
  log.reset();
  remove_run_log(file);
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

TEST(RunFolder, OneThatCannotBeMadeIsNamed) {
  const TemporaryFolder parent;
  parent.write("file", "in the way");
  EXPECT_THAT(refusal(parent.path() / "file/exp"),
              HasSubstr("cannot make the run directory " +
                        (parent.path() / "file").string()));
}

}  // namespace
}  // namespace headroom::cli
