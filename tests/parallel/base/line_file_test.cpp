#include "parallel/base/atomic_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/file_size_limit.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

class LineFiles : public ::testing::Test {
 protected:
  LineFiles() { fs::remove(path_); }
  ~LineFiles() override { fs::remove(path_); }
  std::string text() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const fs::path path_ =
      fs::path(::testing::TempDir()) / ("lines-" + std::to_string(::getpid()));
};

TEST_F(LineFiles, GrowByTheAddedLines) {
  LineFile file(path_);
  EXPECT_TRUE(file.write());
  EXPECT_FALSE(fs::exists(path_));
  file.add("one");
  file.add("two");
  EXPECT_TRUE(file.write());
  EXPECT_TRUE(file.write());
  EXPECT_EQ(text(), "one\ntwo\n");
  LineFile other(path_);
  other.add("three");
  EXPECT_TRUE(other.write());
  EXPECT_EQ(text(), "one\ntwo\nthree\n");
}

TEST_F(LineFiles, OnAFullDiskHaveWholeLinesAndNoGap) {
  LineFile file(path_);
  file.add("one");
  ASSERT_TRUE(file.write());
  for (const rlim_t bytes : {4, 5, 7}) {
    const FileSizeLimit full(bytes);
    file.add("two");
    EXPECT_FALSE(file.write());
    EXPECT_EQ(errno, EFBIG);
  }
  EXPECT_EQ(text(), "one\n");
  file.add("three");
  EXPECT_TRUE(file.write());
  EXPECT_EQ(text(), "one\ntwo\ntwo\ntwo\nthree\n");
}

TEST_F(LineFiles, ThatCannotBeMadeAreMadeOnceTheyCan) {
  LineFile file(path_ / "in-a-folder");
  file.add("one");
  EXPECT_FALSE(file.write());
  EXPECT_EQ(errno, ENOENT);
  fs::create_directory(path_);
  EXPECT_TRUE(file.write());
  EXPECT_TRUE(fs::exists(path_ / "in-a-folder"));
  fs::remove_all(path_);
}

}  // namespace
}  // namespace headroom
