#include "deploy/records/line_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace headroom::records {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LineFollowerTest : public ::testing::Test {
 protected:
  std::vector<std::string> lines() {
    std::vector<std::string> taken;
    follower_.read([this] { ++restarts_; },
                   [&](std::string_view line) { taken.emplace_back(line); });
    return taken;
  }
  void write(const std::string& text) { folder_.write("lines", text); }
  void append(const std::string& text) {
    std::ofstream(file_, std::ios::app | std::ios::binary) << text;
  }

  const testing::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "lines";
  LineFollower follower_{file_};
  int restarts_ = 0;
};

TEST_F(LineFollowerTest, EachWholeLineComesOnce) {
  EXPECT_THAT(lines(), IsEmpty());
  write("a\nb\nha");
  EXPECT_THAT(lines(), ElementsAre("a", "b"));
  EXPECT_THAT(lines(), IsEmpty());
  append("lf\n\n");
  EXPECT_THAT(lines(), ElementsAre("half", ""));
  EXPECT_EQ(restarts_, 0);
}

// A restarted process cuts off the partial line of a killed writer.
TEST_F(LineFollowerTest, AHalfLineThatIsCutOffIsNoLine) {
  write("a\ntorn");
  EXPECT_THAT(lines(), ElementsAre("a"));
  std::filesystem::resize_file(file_, 2);
  EXPECT_THAT(lines(), IsEmpty());
  append("b\n");
  EXPECT_THAT(lines(), ElementsAre("b"));
  append("torn");
  EXPECT_THAT(lines(), IsEmpty());
  std::filesystem::resize_file(file_, 4);
  append("another line\n");
  EXPECT_THAT(lines(), ElementsAre("another line"));
  EXPECT_EQ(restarts_, 0);
}

TEST_F(LineFollowerTest, AFileThatBeginsAgainIsReadAgain) {
  write("a\nb\n");
  lines();
  std::filesystem::resize_file(file_, 2);
  EXPECT_THAT(lines(), ElementsAre("a"));
  EXPECT_EQ(restarts_, 1);
  std::filesystem::rename(file_, folder_.path() / "older");
  EXPECT_THAT(lines(), IsEmpty()) << "it is not there";
  EXPECT_EQ(restarts_, 1);
  write("x\n");
  EXPECT_THAT(lines(), ElementsAre("x"));
  EXPECT_EQ(restarts_, 2);
}

TEST_F(LineFollowerTest, TooLongLinesAreSkipped) {
  write("a\n" + std::string(20 << 20, 'x'));
  EXPECT_THAT(lines(), ElementsAre("a"));
  append("xx\nb\n");
  EXPECT_THAT(lines(), ElementsAre("b"));
  append("c\n");
  EXPECT_THAT(lines(), ElementsAre("c"));
  EXPECT_EQ(restarts_, 0);
}

TEST_F(LineFollowerTest, LinesBeforeTheFirstByteAreNotRead) {
  write("a\nb\ntorn");
  EXPECT_EQ(end_of_lines(file_), 4u);
  LineFollower later(file_, end_of_lines(file_));
  std::vector<std::string> taken;
  const auto read = [&] {
    later.read([this] { ++restarts_; },
               [&](std::string_view line) { taken.emplace_back(line); });
  };
  read();
  std::filesystem::resize_file(file_, 4);
  append("c\n");
  read();
  EXPECT_THAT(taken, ElementsAre("c"));
  EXPECT_EQ(restarts_, 0);
}

TEST_F(LineFollowerTest, TheEndOfLinesIsBehindTheLastFeed) {
  EXPECT_EQ(end_of_lines(file_), 0u);
  write("no feed");
  EXPECT_EQ(end_of_lines(file_), 0u);
  write("a\n" + std::string(200'000, 'x'));
  EXPECT_EQ(end_of_lines(file_), 2u);
}

}  // namespace
}  // namespace headroom::records
