#include "parallel/base/regular_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace headroom {
namespace {

TEST(RegularFile, APipeADeviceAndAFolderAreRefusedAtOnce) {
  const testing::TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::filesystem::path& path :
       {pipe, std::filesystem::path("/dev/zero"), folder.path()}) {
    errno = 0;
    EXPECT_FALSE(RegularFile(path, Links::kFollowed).is_open()) << path;
    EXPECT_EQ(errno, ENOTSUP) << path;
    EXPECT_FALSE(text_of_file(path, 100, Links::kFollowed)) << path;
  }
}

TEST(RegularFile, ALinkIsFollowedOnlyIfThatIsAskedFor) {
  const testing::TemporaryFolder folder;
  const auto link = folder.path() / "link";
  std::filesystem::create_symlink(folder.write("file", "text"), link);
  EXPECT_EQ(text_of_file(link, 4, Links::kFollowed), "text");
  errno = 0;
  EXPECT_FALSE(text_of_file(link, 4, Links::kRefused));
  EXPECT_EQ(errno, ELOOP);
}

TEST(RegularFile, AFileAboveTheBoundIsNotRead) {
  const testing::TemporaryFolder folder;
  const auto file = folder.write("file", "12345");
  EXPECT_EQ(text_of_file(file, 5, Links::kRefused), "12345");
  errno = 0;
  EXPECT_FALSE(text_of_file(file, 4, Links::kRefused));
  EXPECT_EQ(errno, EFBIG);
  errno = 0;
  EXPECT_FALSE(text_of_file(folder.path() / "none", 4, Links::kRefused));
  EXPECT_EQ(errno, ENOENT);
}

TEST(RegularFile, ReadsStopAtTheSizeThatTheFileHadWhenItWasOpened) {
  const testing::TemporaryFolder folder;
  const RegularFile opened(folder.write("file", "12345"), Links::kRefused);
  folder.write("file", "1234567");
  EXPECT_EQ(opened.read(3, 100), "45");
  EXPECT_EQ(opened.read(5, 100), "");
}

TEST(ForEachLine, GivesEachLineAndWhetherItIsWhole) {
  const testing::TemporaryFolder folder;
  const RegularFile file(folder.write("file", "one\n\nthr"), Links::kRefused);
  std::vector<std::string> lines;
  const auto take = [&](std::string_view line, bool is_whole) {
    lines.push_back(std::string(line) + (is_whole ? "." : "?"));
    return true;
  };
  EXPECT_TRUE(for_each_line(file, take));
  EXPECT_EQ(lines, (std::vector<std::string>{"one.", ".", "thr?"}));
}

TEST(ForEachLine, ALineAboveTheBoundEndsTheReading) {
  const testing::TemporaryFolder folder;
  const RegularFile file(
      folder.write("file", "short\n" + std::string(3 * kLongestLine, 'x')),
      Links::kRefused);
  int lines = 0;
  EXPECT_FALSE(for_each_line(file, [&](std::string_view, bool) {
    ++lines;
    return true;
  }));
  EXPECT_EQ(lines, 1);
  EXPECT_EQ(errno, EFBIG);
}

}  // namespace
}  // namespace headroom
