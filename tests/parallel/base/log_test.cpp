#include "parallel/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace headroom {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override {
    log::set_level(log::Level::kInfo);
    log::set_prefix("");
  }
};

TEST_F(LogTest, LinesGoToStderrWithTimeLevelAndPrefix) {
  ::testing::internal::CaptureStderr();
  log::set_prefix("gen 2 rank 3/8");
  log::warn("2 images were skipped");
  log::set_prefix("");
  log::info("plain {} %s");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::MatchesRegex(
                        "[0-9:]+ .*warn.* .gen 2 rank 3/8. 2 images were "
                        "skipped\n[0-9:]+ .*info.* plain .. %s\n"));
}

TEST_F(LogTest, ARecordIsReadBackUnchanged_AndOtherLinesAreNoRecords) {
  for (const log::Level level : {log::Level::kDebug, log::Level::kInfo,
                                 log::Level::kWarn, log::Level::kError}) {
    const auto back = log::from_line(log::to_line({"12:03:44", level, "a  b"}));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->level, level);
    EXPECT_EQ(log::to_text(*back),
              std::string("12:03:44 ") + log::to_string(level) + " a  b");
  }
  for (const char* const line : {"", "12:03:44 warning a", "\036", "\0362",
                                 "\0369now a", "\036/now a", "2now a"}) {
    EXPECT_FALSE(log::from_line(line)) << line;
  }
}

// Runs in a process of its own, because a process that follows its parent does
// so until it ends.
TEST(LogRecordsDeathTest, AProcessWritesRecordsIfItsParentRequestsThem) {
  const auto speak = [] {
    log::follow_parent();  // no effect: no parent wants records
    log::warn("as text");
    setenv(log::kRecordsVariable, "1", 1);
    log::follow_parent();
    log::set_prefix("gen 2");
    log::warn("two are bad");
    log::pass_on({"12:03:44", log::Level::kError, "of a child"});
    std::exit(std::getenv(log::kRecordsVariable) == nullptr ? 0 : 1);
  };
  EXPECT_EXIT(speak(), ::testing::ExitedWithCode(0),
              "[0-9:]+ .*warning.* as text\n"
              "\x1e"
              "2[0-9:]+ .gen 2. two are bad\n"
              "\x1e"
              "312:03:44 of a child\n");
}

TEST_F(LogTest, LinesBelowTheLevelAreDropped) {
  ::testing::internal::CaptureStderr();
  log::debug("not yet");
  log::set_level(log::Level::kError);
  log::warn("no more");
  log::error("only this");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, ::testing::HasSubstr("only this"));
}

TEST_F(LogTest, LinesOfSeveralThreadsAreNeverInterleaved) {
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) log::info("<" + std::string(50, 'a') + ">");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 400);
  size_t whole = 0;
  const std::string line = "<" + std::string(50, 'a') + ">\n";
  for (size_t i = text.find(line); i != std::string::npos;
       i = text.find(line, i + 1)) {
    ++whole;
  }
  EXPECT_EQ(whole, 400u);
}

}  // namespace
}  // namespace headroom
