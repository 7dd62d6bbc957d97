#include "deploy/cli/process/line_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A folder to which a run has already begun to write.
struct BegunFolder : testing::TemporaryFolder {
  BegunFolder() { fs::create_directory(path() / "weights"); }
};

std::vector<Json> records(const testing::TemporaryFolder& folder,
                          const std::string& file) {
  std::vector<Json> all;
  std::istringstream lines(folder.read("logs/" + file));
  for (std::string line; std::getline(lines, line);) {
    all.push_back(Json::parse(line));
  }
  return all;
}

TEST(LineLog, ALineIsARecord) {
  const BegunFolder run;
  LineLog log(run.path(), "workers-h-0");
  log.add("worker w0",
          child_line(log::to_line({"12:03:44", log::Level::kWarn,
                                   "[gen 2 rank 1/2] two are bad"})));
  log.add("worker w0", child_line("terminate \"called\" \xff"));
  const auto found = records(run, "workers-h-0.jsonl");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].at("process"), "worker w0");
  EXPECT_EQ(found[0].at("level"), "warning");
  EXPECT_EQ(found[0].at("message"), "[gen 2 rank 1/2] two are bad");
  const std::string time = found[0].at("time");
  EXPECT_EQ(time.size(), std::string("2026-11-22T01:02:03.456Z").size());
  EXPECT_EQ(time.back(), 'Z');
  EXPECT_EQ(found[1].at("level"), "output");
  EXPECT_EQ(found[1].at("message"), "terminate \"called\" ?");
}

TEST(LineLog, TheNewestLinesStayWithinTheLimit) {
  const BegunFolder run;
  constexpr int kLines = 200;
  LineLogLimits limits;
  limits.file_bytes = 1000;
  limits.files = 3;
  LineLog log(run.path(), "coordinator", limits);
  for (int i = 0; i < kLines; ++i) log.add("c", child_line(std::to_string(i)));
  int64_t bytes = 0;
  int files = 0;
  std::vector<int> kept;
  for (const char* file :
       {"coordinator.2.jsonl", "coordinator.1.jsonl", "coordinator.jsonl"}) {
    const auto size =
        static_cast<int64_t>(fs::file_size(run.path() / "logs" / file));
    EXPECT_LE(size, limits.file_bytes);
    bytes += size;
    ++files;
    for (const Json& record : records(run, file)) {
      kept.push_back(std::stoi(record.at("message").get<std::string>()));
    }
  }
  EXPECT_FALSE(fs::exists(run.path() / "logs/coordinator.3.jsonl"));
  EXPECT_GT(bytes, 2 * 800);
  ASSERT_FALSE(kept.empty());
  // No line is missing between the first kept line and the newest one.
  EXPECT_EQ(kept.back(), kLines - 1);
  EXPECT_EQ(kept.back() - kept.front() + 1, static_cast<int>(kept.size()));
  EXPECT_EQ(files, 3);
}

TEST(LineLog, LinesWaitForTheRunsFolder) {
  const testing::TemporaryFolder parent;
  const fs::path run = parent.path() / "exp";
  LineLogLimits limits;
  limits.waiting_lines = 3;
  {
    LineLog log(run, "coordinator", limits);
    for (int i = 0; i < 5; ++i) log.add("c", child_line(std::to_string(i)));
    EXPECT_FALSE(fs::exists(run)) << "it is not this log's to make";
    fs::create_directories(run / "weights");
    log.add("c", child_line("5"));
  }
  std::ifstream in(run / "logs/coordinator.jsonl");
  std::vector<std::string> messages;
  for (std::string line; std::getline(in, line);) {
    messages.push_back(Json::parse(line).at("message"));
  }
  EXPECT_EQ(messages, (std::vector<std::string>{"2", "3", "4", "5"}));
}

TEST(LineLog, AnotherRunAddsAndAnotherProcessHasAFileOfItsOwn) {
  const BegunFolder run;
  { LineLog(run.path(), "workers").add("w", child_line("earlier")); }
  LineLog first(run.path(), "workers");
  LineLog second(run.path(), "workers");
  first.add("w", child_line("first"));
  second.add("w", child_line("second"));
  EXPECT_EQ(records(run, "workers.jsonl").size(), 2u);
  ASSERT_EQ(records(run, "workers-2.jsonl").size(), 1u);
  EXPECT_EQ(records(run, "workers-2.jsonl")[0].at("message"), "second");
}

TEST(LineLog, AFolderThatCannotBeWrittenToIsNoFailure) {
  const BegunFolder run;
  run.write("logs", "a file");
  LineLog log(run.path(), "coordinator");
  log.add("c", child_line("one"));
  log.add("c", child_line("two"));
  EXPECT_EQ(run.read("logs"), "a file");
}

// Another user may have created the link in a run's folder.
TEST(LineLog, ALinkIsNotFollowed) {
  for (const char* name :
       {"logs/workers.jsonl", "logs/.workers.lock", "logs"}) {
    const BegunFolder run;
    const testing::TemporaryFolder other;
    other.write("file", "other");
    const bool is_folder = std::string(name) == "logs";
    if (!is_folder) fs::create_directory(run.path() / "logs");
    fs::create_symlink(is_folder ? other.path() : other.path() / "file",
                       run.path() / name);
    LineLog(run.path(), "workers").add("w", child_line("one"));
    EXPECT_EQ(other.read("file"), "other") << name;
    EXPECT_FALSE(fs::exists(other.path() / "workers.jsonl")) << name;
  }
}

}  // namespace
}  // namespace headroom::cli
