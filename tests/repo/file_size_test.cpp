#include <gtest/gtest.h>

#include "tests/repo/source_tree.h"

namespace headroom {
namespace {

constexpr size_t kMostLines = 600;

// One concept per file: aim at 150 lines, think at 300.
TEST(FileSize, NoFileIsLongerThanAReaderBears) {
  size_t seen = 0;
  for (const SourceFile& file : project_files()) {
    if (file.path == "LICENSE") continue;
    ++seen;
    EXPECT_LE(file.lines.size(), kMostLines) << file.path;
  }
  EXPECT_GT(seen, 50u);
}

TEST(FileSize, TheBuildFileStaysShort) {
  for (const SourceFile& file : project_files()) {
    if (file.path == "CMakeLists.txt") {
      EXPECT_LE(file.lines.size(), 150u);
    }
  }
}

}  // namespace
}  // namespace headroom
