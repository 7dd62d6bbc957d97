#include "proto/event_file.h"
#include "parallel/base/units.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace headroom::wire {
namespace {

namespace fs = std::filesystem;

EventRecord record(EventKind event, const std::string& reason = "") {
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

TEST(EventLine, FixedFieldsFirstThenTheDetails) {
  EventRecord entry =
      record(EventKind::kGeneration, "all 2 workers have joined");
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
  EventRecord entry = record(EventKind::kFault);
  entry.detail_json = "{broken";
  EXPECT_EQ(nlohmann::json::parse(to_json_line(entry))["detail"], "{broken");
}

TEST(EventLine, IsOneLineForAnyReason) {
  const std::string line = to_json_line(record(EventKind::kFault, "a\nb\xff"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(line));
}

TEST_F(EventFileTest, WaitsUntilTheRunHasBegunAndThenAppends) {
  const fs::path run = folder_ / "exp";
  EventFile file(run.string());
  file.add({"one"});
  file.write();
  EXPECT_FALSE(fs::exists(run));
  fs::create_directories(run / "weights");
  file.add({"two"});
  file.write();
  file.write();
  EXPECT_EQ(text_of(run / "events.jsonl"), "one\ntwo\n");
  EventFile resumed(run.string());
  resumed.add({"three"});
  resumed.write();
  EXPECT_EQ(text_of(run / "events.jsonl"), "one\ntwo\nthree\n");
}

TEST_F(EventFileTest, LinesWaitUntilTheFileCanBeWritten) {
  fs::create_directory(folder_ / "weights");
  // A folder has the name of the file, so the file cannot be opened.
  fs::create_directory(folder_ / "events.jsonl");
  EventFile file(folder_.string());
  file.add({"one"});
  file.write();
  fs::remove(folder_ / "events.jsonl");
  file.add({"two"});
  file.write();
  EXPECT_EQ(text_of(folder_ / "events.jsonl"), "one\ntwo\n");
}

}  // namespace
}  // namespace headroom::wire
