// The time that a run took to continue after each refusal of memory, and the
// number of allocations of its steps, both from events.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace headroom::testing {

// The number of allocations of a step on each of `ranks` ranks. An injected
// failure of an allocation that the step does not reach reports this number.
std::vector<int64_t> counted_allocations(const std::filesystem::path& folder,
                                         int ranks);

// The seconds from the first refusal of a generation until the next generation
// was formed, with one entry for each generation that ended because of a
// refusal.
class RetryTimes {
 public:
  // `whole` is the time from the first refusal until the last generation was
  // formed.
  RetryTimes(std::vector<double> seconds, double whole)
      : seconds_(std::move(seconds)), whole_(whole) {}
  size_t count() const { return seconds_.size(); }
  double longest() const;
  double median() const;
  double whole() const { return whole_; }
  // Prints the times as a line of a table.
  void print(const std::string& name) const;

 private:
  std::vector<double> seconds_;
  double whole_;
};

RetryTimes retry_times(const std::filesystem::path& folder);

}  // namespace headroom::testing
