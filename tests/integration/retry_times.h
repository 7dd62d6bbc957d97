// The time that a run took to continue after each refusal of memory, and the
// number of allocations of its steps, both from events.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace headroom::testing {

// The number of allocations of a step on each of `ranks` ranks, as reported by
// an injected failure of an allocation that the step does not reach.
std::vector<int64_t> counted_allocations(const std::filesystem::path& folder,
                                         int ranks);

// Seconds from the first refusal of a generation until the next generation was
// formed: one entry for each generation that was left for it.
class RetryTimes {
 public:
  // `whole`: from the first refusal until the last generation.
  RetryTimes(std::vector<double> seconds, double whole)
      : seconds_(std::move(seconds)), whole_(whole) {}
  size_t count() const { return seconds_.size(); }
  double longest() const;
  double median() const;
  double whole() const { return whole_; }
  // A line of a table.
  void print(const std::string& name) const;

 private:
  std::vector<double> seconds_;
  double whole_;
};

RetryTimes retry_times(const std::filesystem::path& folder);

}  // namespace headroom::testing
