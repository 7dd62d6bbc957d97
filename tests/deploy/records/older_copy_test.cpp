#include "deploy/records/older_copy.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_folder.h"

namespace headroom::records {
namespace {

using testing::TemporaryFolder;

const FolderPlace kThere = {"a1b2", "far-away", "far-away-7", 40};

// The folder of a run on its first machine, which has a note. It has a
// checkpoint after `saved` steps, and lines of `lines` steps.
class Copy {
 public:
  Copy(int64_t saved, int64_t lines) {
    leave_note(folder_.path(), kThere);
    write_mark("a1b2 here-3");
    if (saved > 0) save(saved);
    write_lines(lines);
  }
  void write_mark(const std::string& mark) const {
    folder_.write(".written-by", mark + "\n");
  }
  void save(int64_t steps) const {
    folder_.write(
        "checkpoints/step-" + std::to_string(steps) + "/MANIFEST.json", "{}");
  }
  void write_lines(int64_t lines) const {
    std::string text;
    for (int64_t step = 0; step < lines; ++step) {
      text += "{\"step\":" + std::to_string(step) + "}\n";
    }
    folder_.write("steps.jsonl", text);
  }
  std::optional<OlderCopy> is_older() const {
    return older_copy(folder_.path());
  }

 private:
  TemporaryFolder folder_;
};

TEST(OlderCopy, AFolderWithoutANoteIsNone) {
  const TemporaryFolder folder;
  EXPECT_FALSE(older_copy(folder.path()).has_value());
}

TEST(OlderCopy, BothStatesAreKnown) {
  const auto older = Copy(30, 32).is_older();
  ASSERT_TRUE(older.has_value());
  EXPECT_EQ(older->newest, kThere);
  EXPECT_EQ(older->steps, 30);
  EXPECT_EQ(Copy(0, 3).is_older()->steps, 0);
}

TEST(OlderCopy, AFolderThatWasBroughtBackAfterItWasResumedElsewhereIsNewer) {
  const Copy copy(30, 32);
  // The resumed run has another identity, and its last checkpoint is newer.
  copy.write_mark("c3d4 far-away-9");
  copy.save(44);
  EXPECT_FALSE(copy.is_older().has_value());
}

TEST(OlderCopy, TheNotedStateItselfIsNotOlder) {
  const Copy copy(30, 32);
  copy.save(40);
  EXPECT_FALSE(copy.is_older().has_value());
}

TEST(OlderCopy, AFolderOfARunThatWasKilledThereCountsByItsLines) {
  const Copy copy(30, 40);
  // Without the other machine's mark the lines are this machine's own.
  EXPECT_TRUE(copy.is_older().has_value());
  copy.write_mark("a1b2 far-away-7");
  EXPECT_FALSE(copy.is_older().has_value());
  // The last step's line may be unwritten.
  copy.write_lines(39);
  EXPECT_FALSE(copy.is_older().has_value());
  copy.write_lines(38);
  EXPECT_TRUE(copy.is_older().has_value());
}

TEST(OlderCopy, AnEarlierCopyOfTheOtherMachinesFolderIsOlder) {
  const Copy copy(30, 35);
  copy.write_mark("a1b2 far-away-7");
  ASSERT_TRUE(copy.is_older().has_value());
  EXPECT_EQ(copy.is_older()->steps, 30);
}

}  // namespace
}  // namespace headroom::records
