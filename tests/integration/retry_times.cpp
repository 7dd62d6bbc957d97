#include "tests/integration/retry_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "parallel/base/units.h"
#include "tests/integration/disturbed_run.h"

namespace headroom::testing {
namespace {

double seconds_of(const std::string& time) {
  const auto milliseconds = utc_milliseconds(time);
  EXPECT_TRUE(milliseconds.has_value()) << time;
  return static_cast<double>(milliseconds.value_or(0)) / 1000;
}

}  // namespace

std::vector<int64_t> counted_allocations(const std::filesystem::path& folder,
                                         int ranks) {
  const std::string mark = ": not reached, ";
  std::vector<int64_t> allocations(static_cast<size_t>(ranks), 0);
  for (const Json& event : events_named(folder, "fault")) {
    const std::string reason = event.at("reason");
    const size_t at = reason.find(mark);
    if (at == std::string::npos) continue;
    allocations.at(event.at("rank").get<size_t>()) =
        std::stoll(reason.substr(at + mark.size()));
  }
  return allocations;
}

double RetryTimes::longest() const {
  return seconds_.empty() ? 0 : *std::ranges::max_element(seconds_);
}

double RetryTimes::median() const {
  if (seconds_.empty()) return 0;
  std::vector<double> sorted = seconds_;
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

void RetryTimes::print(const std::string& name) const {
  std::printf("%-28s %3zu retries, median %.2f s, longest %.2f s\n",
              name.c_str(), count(), median(), longest());
}

RetryTimes retry_times(const std::filesystem::path& folder) {
  std::vector<double> seconds;
  std::optional<double> first, refused;
  double whole = 0;
  for (const Json& event :
       lines_so_far(run_directory(folder) / "events.jsonl")) {
    const std::string name = event.at("event");
    const double time = seconds_of(event.at("time"));
    if (name == "out_of_memory" && !refused) refused = time;
    if (name == "generation" && refused) {
      if (!first) first = refused;
      whole = time - *first;
      seconds.push_back(time - *std::exchange(refused, std::nullopt));
    }
  }
  return {std::move(seconds), whole};
}

}  // namespace headroom::testing
