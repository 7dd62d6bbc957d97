#include "deploy/cli/process/line_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>

#include "parallel/base/check.h"
#include "tests/deploy/cli/temporary_folder.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// As a process that was killed `seconds` ago left it.
fs::path left_behind(const fs::path& parent, const std::string& name,
                     int seconds) {
  const fs::path folder = parent / name;
  fs::create_directories(folder);
  std::ofstream(folder / "coordinator.log") << "records";
  const timespec then{std::time(nullptr) - seconds, 0};
  const timespec times[2] = {then, then};
  EXPECT_EQ(utimensat(AT_FDCWD, folder.c_str(), times, 0), 0);
  return folder;
}

TEST(LogFolder, IsItsOwnersAloneAndGoesWithIt) {
  const testing::TemporaryFolder parent;
  fs::path path;
  {
    const LogFolder folder(parent.path());
    path = folder.path();
    EXPECT_EQ(fs::status(path).permissions() & fs::perms::mask,
              fs::perms::owner_all);
    std::ofstream(folder.log_file()) << "records";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(LogFolder, RemovesWhatTheKilledLeftBehindAndNothingElse) {
  const testing::TemporaryFolder parent;
  const fs::path dead = left_behind(parent.path(), "headroom-log-dead00", 100);
  const fs::path just_now =
      left_behind(parent.path(), "headroom-log-justno", 0);
  const fs::path unlocked =
      left_behind(parent.path(), "headroom-new-unlock", 100);
  const fs::path young = left_behind(parent.path(), "headroom-new-young0", 0);
  const fs::path other = left_behind(parent.path(), "another", 100);
  const LogFolder living(parent.path());
  fs::path aged = living.path();
  const timespec then{std::time(nullptr) - 100, 0};
  const timespec times[2] = {then, then};
  ASSERT_EQ(utimensat(AT_FDCWD, aged.c_str(), times, 0), 0);
  const LogFolder next(parent.path());
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_FALSE(fs::exists(just_now));
  EXPECT_FALSE(fs::exists(unlocked));
  EXPECT_TRUE(fs::exists(young)) << "its owner may be about to lock it";
  EXPECT_TRUE(fs::exists(other));
  EXPECT_TRUE(fs::exists(aged)) << "its owner lives";
}

TEST(LogFolder, AFolderThatIsNotThereIsNamed) {
  EXPECT_THROW(LogFolder("/nowhere/at/all"), Error);
}

}  // namespace
}  // namespace headroom::cli
