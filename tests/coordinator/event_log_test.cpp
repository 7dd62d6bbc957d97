#include "coordinator/event_log.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace headroom {
namespace {

namespace fs = std::filesystem;

EventRecord record(const std::string& event, const std::string& reason = "") {
  EventRecord entry;
  entry.event = event;
  entry.reason = reason;
  return entry;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class EventFileTest : public testing::Test {
 protected:
  EventFileTest() {
    std::string name = testing::TempDir() + "headroom-events-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~EventFileTest() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST(EventLog, NumbersFromOneAndStampsTheTime) {
  EventLog log;
  EXPECT_EQ(log.append(record("a"), "then").sequence, 1);
  EXPECT_EQ(log.append(record("b"), "now").sequence, 2);
  EXPECT_EQ(log.next_after(0)->event, "a");
  EXPECT_EQ(log.next_after(1)->event, "b");
  EXPECT_EQ(log.next_after(1)->time, "now");
  EXPECT_EQ(log.next_after(2), nullptr);
  EXPECT_EQ(log.next_after(99), nullptr);
  EXPECT_EQ(EventLog().next_after(0), nullptr);
}

TEST(EventLog, TheOldestGiveWayAndAReaderThatFellBehindSkips) {
  EventLog log;
  for (int i = 0; i < 1500; ++i) log.append(record(std::to_string(i)), "");
  EXPECT_EQ(log.next_after(0)->sequence, 501);
  EXPECT_EQ(log.next_after(0)->event, "500");
  EXPECT_EQ(log.next_after(1499)->sequence, 1500);
  const std::vector<EventRecord> newest = log.newest(2);
  ASSERT_EQ(newest.size(), 2u);
  EXPECT_EQ(newest[0].event, "1498");
  EXPECT_EQ(log.newest(5000).size(), EventLog::kMaxEvents);
}

TEST(EventLog, HugeEventsGiveWayByBytes) {
  EventLog log;
  for (int i = 0; i < 40; ++i) {
    log.append(record("huge", std::string(1 << 20, 'x')), "");
  }
  EXPECT_EQ(log.newest(100).size(), 15u);
  // One event larger than the bound is still there to be read.
  log.append(record("larger", std::string(EventLog::kMaxBytes, 'x')), "");
  ASSERT_EQ(log.newest(100).size(), 1u);
  EXPECT_EQ(log.newest(1)[0].event, "larger");
}

TEST(EventLine, FixedFieldsFirstThenTheDetails) {
  EventRecord entry = record("generation", "all 2 workers have joined");
  entry.rank = -1;
  entry.step = 7;
  entry.time = "2026-11-21T08:23:00.123Z";
  entry.detail_json = R"({"generation":1,"step":99,"plan":{"x":[1]}})";
  EXPECT_EQ(to_json_line(entry), R"({"event":"generation","step":7,"rank":-1,)"
                                 R"("reason":"all 2 workers have joined",)"
                                 R"("time":"2026-11-21T08:23:00.123Z",)"
                                 R"("generation":1,"plan":{"x":[1]}})");
}

TEST(EventLine, DetailsThatAreNoObjectAreKeptAsText) {
  EventRecord entry = record("fault");
  entry.detail_json = "{broken";
  EXPECT_EQ(nlohmann::json::parse(to_json_line(entry))["detail"], "{broken");
}

TEST(EventLine, IsOneLineWhateverTheReasonHolds) {
  const std::string line = to_json_line(record("fault", "a\nb\xff"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(line));
}

TEST(UtcNow, LooksLikeATime) {
  EXPECT_THAT(utc_now(),
              testing::MatchesRegex("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T"
                                    "[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\\."
                                    "[0-9][0-9][0-9]Z"));
}

TEST_F(EventFileTest, WaitsForTheRunDirectoryAndThenAppends) {
  const fs::path run = folder_ / "exp";
  EventFile file(run.string());
  file.add({"one"});
  file.write();
  EXPECT_FALSE(fs::exists(run));
  fs::create_directory(run);
  file.add({"two"});
  file.write();
  file.write();
  EXPECT_EQ(text_of(run / "events.jsonl"), "one\ntwo\n");
  EventFile resumed(run.string());
  resumed.add({"three"});
  resumed.write();
  EXPECT_EQ(text_of(run / "events.jsonl"), "one\ntwo\nthree\n");
}

TEST_F(EventFileTest, AFileThatCannotBeWrittenStopsNothing) {
  fs::create_directory(folder_ / "events.jsonl");  // a folder in its place
  EventFile file(folder_.string());
  file.add({"one"});
  file.write();
  fs::remove(folder_ / "events.jsonl");
  file.add({"two"});
  file.write();
  EXPECT_FALSE(fs::exists(folder_ / "events.jsonl"));
}

}  // namespace
}  // namespace headroom
