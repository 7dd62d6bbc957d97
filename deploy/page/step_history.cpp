#include "deploy/page/step_history.h"

#include <algorithm>
#include <limits>

#include "deploy/records/run_lines.h"
#include "parallel/base/run_files.h"

namespace headroom::page {
namespace {

static_assert(kStepColumns.size() == kAllLossNames.size() + 4);

constexpr size_t kMostSteps = 12'288;
// The greatest number of points for all ranks' memory, and for one rank.
constexpr size_t kMostMemoryPoints = 131'072;
constexpr size_t kMostMemoryOfRank = 4096;
constexpr size_t kLeastMemoryOfRank = 64;
constexpr int64_t kLargestCount = int64_t{1} << 50;

}  // namespace

StepHistory::StepHistory(const std::filesystem::path& run_directory)
    : follower_(run_directory / run_files::kSteps),
      steps_(kStepColumns.size(), kMostSteps) {}

void StepHistory::refresh() {
  follower_.read([this] { forget(); },
                 [this](std::string_view line) { take(line); });
}

void StepHistory::forget() {
  steps_.clear();
  memory_.clear();
  num_steps_ = 0;
}

void StepHistory::take(std::string_view text) {
  const auto line = records::step_line(text, records::Samples::kLeftOut);
  if (!line || line->step < 0 || line->step > kLargestCount) return;
  const double epoch = line->epoch ? static_cast<double>(*line->epoch)
                                   : std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values = {epoch};
  for (const char* name : kAllLossNames) {
    const auto loss = std::ranges::find(line->losses, std::string_view(name),
                                        &NamedLoss::name);
    values.push_back(loss == line->losses.end()
                         ? std::numeric_limits<double>::quiet_NaN()
                         : loss->value);
  }
  values.insert(values.end(),
                {line->grad_norm, line->lr, line->images_per_second});
  steps_.add(line->step, values);
  num_steps_ = line->step + 1;
  epoch_samples_ =
      std::clamp<int64_t>(line->epoch_samples.value_or(0), 0, kLargestCount);
  for (const records::StepLine::Rank& one : line->memory) {
    memory_of(one.rank).add(line->step, std::array{one.predicted_peak_bytes,
                                                   one.measured_peak_bytes});
  }
}

DecimatedSeries& StepHistory::memory_of(int rank) {
  const auto [place, is_new] =
      memory_.try_emplace(rank, DecimatedSeries(2, kMostMemoryOfRank));
  if (is_new) {
    const size_t capacity = std::clamp(kMostMemoryPoints / memory_.size(),
                                       kLeastMemoryOfRank, kMostMemoryOfRank);
    for (auto& [other, series] : memory_) series.set_capacity(capacity);
  }
  return place->second;
}

}  // namespace headroom::page
