#include "deploy/records/recent_steps.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "deploy/records/run_lines.h"
#include "parallel/base/median.h"
#include "parallel/base/run_files.h"

namespace headroom::records {
namespace {

// Where the last bytes of a file begin. A line that begins earlier is invalid
// without its beginning, and is ignored.
uint64_t begin_of_last_bytes(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  return error || size < kLastBytes ? 0 : size - kLastBytes;
}

}  // namespace

RecentSteps::RecentSteps(const std::filesystem::path& run_directory)
    : follower_(run_directory / run_files::kSteps,
                begin_of_last_bytes(run_directory / run_files::kSteps)) {}

void RecentSteps::refresh() {
  follower_.read([this] { forget(); },
                 [this](std::string_view line) { take(line); });
}

void RecentSteps::forget() {
  lines_.clear();
  bytes_ = 0;
  last_line_.clear();
}

void RecentSteps::take(std::string_view text) {
  const auto step = step_line(text, Samples::kLeftOut);
  lines_.push_back(
      {text.size() + 1, step ? step->images_per_second
                             : std::numeric_limits<double>::quiet_NaN()});
  bytes_ += lines_.back().bytes;
  for (; bytes_ > kLastBytes && lines_.size() > 1; lines_.pop_front()) {
    bytes_ -= lines_.front().bytes;
  }
  if (step) last_line_ = without_samples(text);
}

double RecentSteps::median_speed() const {
  std::vector<double> speeds;
  for (const Line& line : lines_) {
    if (std::isfinite(line.images_per_second)) {
      speeds.push_back(line.images_per_second);
    }
  }
  return median(std::move(speeds));
}

double median_speed(const std::filesystem::path& run_directory) {
  RecentSteps steps(run_directory);
  steps.refresh();
  return steps.median_speed();
}

}  // namespace headroom::records
