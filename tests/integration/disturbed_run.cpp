#include "tests/integration/disturbed_run.h"

#include <gtest/gtest.h>

#include <thread>

namespace headroom::testing {

namespace fs = std::filesystem;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool wait_until(const std::function<bool()>& is_so, double seconds) {
  const Clock::time_point begin = Clock::now();
  while (!is_so()) {
    if (seconds_since(begin) > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

fs::path run_directory(const fs::path& folder) {
  return folder / "runs/train/exp";
}

std::vector<Json> lines_so_far(const fs::path& file) {
  std::vector<Json> lines;
  const std::string text = text_of(file);
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos;
       end = text.find('\n', begin)) {
    lines.push_back(Json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

std::vector<Json> steps_so_far(const fs::path& folder) {
  return lines_so_far(run_directory(folder) / "steps.jsonl");
}

std::vector<Json> events_named(const fs::path& folder,
                               const std::string& name) {
  std::vector<Json> events =
      lines_so_far(run_directory(folder) / "events.jsonl");
  std::erase_if(events,
                [&](const Json& event) { return event.at("event") != name; });
  return events;
}

std::vector<std::string> in_slot(int slot, int size, const std::string& job,
                                 const std::vector<std::string>& command) {
  const std::string number = std::to_string(slot);
  const std::string count = std::to_string(size);
  std::vector<std::string> words = {"env",
                                    "OMPI_COMM_WORLD_RANK=" + number,
                                    "OMPI_COMM_WORLD_SIZE=" + count,
                                    "OMPI_COMM_WORLD_LOCAL_RANK=" + number,
                                    "OMPI_COMM_WORLD_LOCAL_SIZE=" + count,
                                    "PMIX_NAMESPACE=" + job};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

// The processes that answer a query before the run are not workers.
std::vector<pid_t> workers_of(pid_t pid) {
  return descendants(pid, "--worker-id");
}

std::vector<pid_t> coordinators_of(pid_t supervisor) {
  return descendants(supervisor, "--config-fd");
}

std::vector<pid_t> agents_of(pid_t supervisor) {
  return descendants(supervisor, "--supervised");
}

void expect_same_steps(const std::vector<Json>& steps,
                       const std::vector<Json>& expected) {
  ASSERT_EQ(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("step"), i);
    EXPECT_EQ(steps[i].at("samples"), expected[i].at("samples")) << i;
    EXPECT_EQ(steps[i].at("loss"), expected[i].at("loss")) << i;
    EXPECT_EQ(steps[i].at("grad_norm"), expected[i].at("grad_norm")) << i;
  }
}

void expect_exact_ledger(const fs::path& folder) {
  const fs::path beside = folder / "ledger";
  fs::create_directories(beside);
  const ProgramResult ledger =
      run_program({program("headroom"), "status",
                   run_directory(folder).string(), "--ledger"},
                  beside);
  EXPECT_EQ(ledger.exit_code, 0) << ledger.out << ledger.err;
}

}  // namespace headroom::testing
