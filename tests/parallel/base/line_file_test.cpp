#include "parallel/base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
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

// Another user may have created the link in a run's folder.
TEST_F(LineFiles, ALinkIsNotFollowed) {
  const fs::path other = path_.string() + "-other";
  std::ofstream(other) << "other\n";
  fs::create_symlink(other, path_);
  LineFile file(path_);
  file.add("one");
  EXPECT_FALSE(file.write());
  EXPECT_EQ(errno, ELOOP);
  EXPECT_EQ(fs::file_size(other), 6u);
  fs::remove(path_);
  EXPECT_TRUE(file.write());
  EXPECT_EQ(text(), "one\n");
  fs::remove(other);
}

TEST_F(LineFiles, AreCutAtANumberOfBytes) {
  LineFile file(path_);
  EXPECT_TRUE(file.cut_to(3));
  EXPECT_EQ(text(), "");
  file.add("one");
  file.add("two");
  EXPECT_TRUE(file.write());
  EXPECT_TRUE(file.cut_to(100));
  EXPECT_EQ(text(), "one\ntwo\n");
  EXPECT_TRUE(file.cut_to(4));
  EXPECT_EQ(text(), "one\n");
  fs::rename(path_, path_.string() + "-other");
  fs::create_symlink(path_.string() + "-other", path_);
  EXPECT_FALSE(file.cut_to(0));
  EXPECT_EQ(errno, ELOOP);
  fs::remove(path_);
  EXPECT_EQ(fs::file_size(path_.string() + "-other"), 4u);
  fs::remove(path_.string() + "-other");
}

TEST_F(LineFiles, APlantedPartialFileIsReplaced) {
  const fs::path partial = path_.string() + kPartialSuffix;
  const fs::path other = path_.string() + "-other";
  const auto write = [&] { write_whole_file(path_, "whole"); };
  for (const bool is_link : {true, false}) {
    std::ofstream(other) << "other\n";
    if (is_link) {
      fs::create_symlink(other, partial);
    } else {
      fs::create_hard_link(other, partial);
    }
    write();
    EXPECT_EQ(text(), "whole");
    EXPECT_EQ(fs::file_size(other), 6u) << is_link;
    EXPECT_FALSE(fs::exists(fs::symlink_status(partial)));
  }
  // Opening a pipe would wait for a reader.
  ASSERT_EQ(::mkfifo(partial.c_str(), 0600), 0);
  write();
  EXPECT_EQ(text(), "whole");
  fs::remove(other);
}

}  // namespace
}  // namespace headroom
