#include "parallel/base/folder_place.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

const FolderPlace kThere = {"a1b2", "far-away", "far-away-7", 40};

TEST(FolderPlace, ThePathOfAnotherMachineIsElsewhere) {
  const TemporaryFolder run;
  EXPECT_TRUE(is_elsewhere(run.path(), kThere));
  EXPECT_TRUE(is_elsewhere(run.path() / "missing", kThere));
}

TEST(FolderPlace, BeforeTheFirstStepNothingIsElsewhere) {
  const TemporaryFolder run;
  EXPECT_FALSE(is_elsewhere(run.path(), {.run_id = "a1b2"}));
}

TEST(FolderPlace, ASharedFolderOrACopyHasTheMark) {
  const TemporaryFolder run;
  write_folder_mark(run.path(), "a1b2", "far-away-7");
  EXPECT_FALSE(is_elsewhere(run.path(), kThere));
}

TEST(FolderPlace, ASharedFolderKeepsTheMarksOfItsRun) {
  const TemporaryFolder run;
  write_folder_mark(run.path(), "a1b2", "far-away-7");
  // A later rank 0 is lost before its first step.
  write_folder_mark(run.path(), "a1b2", "other-3");
  EXPECT_FALSE(is_elsewhere(run.path(), kThere));
  write_folder_mark(run.path(), "c3d4", "other-3");
  EXPECT_TRUE(is_elsewhere(run.path(), kThere));
}

TEST(FolderPlace, ThisMachinesOwnFolderIsHereWithoutAMark) {
  const TemporaryFolder run;
  EXPECT_FALSE(
      is_elsewhere(run.path(), {"a1b2", this_host_name(), "whoever", 40}));
}

TEST(FolderPlace, TheFolderOfAnotherAgentOrRunIsNotIt) {
  const TemporaryFolder run;
  write_folder_mark(run.path(), "a1b2", "other-7");
  EXPECT_TRUE(is_elsewhere(run.path(), kThere));
  EXPECT_FALSE(belongs_to_other_run(run.path(), "a1b2"));
  write_folder_mark(run.path(), "c3d4", "far-away-7");
  EXPECT_TRUE(is_elsewhere(run.path(), kThere));
  EXPECT_TRUE(belongs_to_other_run(run.path(), "a1b2"));
}

TEST(FolderPlace, ANoteNamesAnotherMachine) {
  const TemporaryFolder root;
  const fs::path run = root.path() / "runs" / "exp";
  EXPECT_EQ(noted_elsewhere(run), std::nullopt);
  leave_note(run, kThere);
  EXPECT_EQ(noted_elsewhere(run), kThere);
  leave_note(run, {"a1b2", this_host_name(), "here-7", 40});
  EXPECT_EQ(noted_elsewhere(run), std::nullopt);
}

TEST(FolderPlace, RankZeroOnThisMachineRemovesTheNote) {
  const TemporaryFolder run;
  leave_note(run.path(), kThere);
  write_folder_mark(run.path(), "c3d4", "here-3");
  EXPECT_EQ(noted_elsewhere(run.path()), std::nullopt);
}

TEST(FolderPlace, ADamagedNoteIsNone) {
  const TemporaryFolder run;
  run.write(".elsewhere", "a1b2\nfar-away\n");
  EXPECT_EQ(noted_elsewhere(run.path()), std::nullopt);
}

TEST(FolderPlace, AnUnmarkedFolderBelongsToAnotherRunOnceItHasBegun) {
  const TemporaryFolder root;
  EXPECT_FALSE(belongs_to_other_run(root.path() / "missing", "a1b2"));
  EXPECT_FALSE(belongs_to_other_run(root.path(), "a1b2"));
  fs::create_directory(root.path() / "weights");
  EXPECT_TRUE(belongs_to_other_run(root.path(), "a1b2"));
}

TEST(FolderPlace, ANoteThatWouldSpoilACommandIsNone) {
  const TemporaryFolder run;
  run.write(".elsewhere", "a1b2\n-e/bin/sh\nnode-1\n40\n");
  EXPECT_EQ(noted_elsewhere(run.path()), std::nullopt);
  run.write(".elsewhere", "a1b2\n\033[2Jhost\nnode-1\n40\n");
  EXPECT_EQ(noted_elsewhere(run.path()), std::nullopt);
}

TEST(FolderPlace, TheLineNamesMachineFolderStepsAndCommand) {
  EXPECT_EQ(where_it_is("/data/my runs/exp", kThere),
            "the newest state of /data/my runs/exp, after 40 steps, is on "
            "far-away, not on this machine");
  EXPECT_EQ(how_to_reach_it("/data/my runs/exp", kThere),
            "type commands for it there, or bring it here first: rsync -a "
            "'far-away:/data/my runs/exp/' '/data/my runs/exp/'");
}

}  // namespace
}  // namespace headroom
