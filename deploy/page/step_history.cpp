#include "deploy/page/step_history.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "deploy/records/run_lines.h"
#include "parallel/base/run_files.h"

namespace headroom::page {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostSteps = 12'288;
// The greatest number of points for all ranks' memory, and for one rank.
constexpr size_t kMostMemoryPoints = 131'072;
constexpr size_t kMostMemoryOfRank = 4096;
constexpr size_t kLeastMemoryOfRank = 64;
constexpr int64_t kMostRanks = 4096;
constexpr int64_t kLargestCount = int64_t{1} << 50;

double number(const Json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_number() ? found->get<double>()
                                                     : kUnknown;
}

// A whole number in [0, most].
std::optional<int64_t> whole(const Json& record, const char* key,
                             int64_t most) {
  const auto found = record.find(key);
  if (found == record.end() || !found->is_number_unsigned() ||
      *found > static_cast<uint64_t>(most)) {
    return std::nullopt;
  }
  return found->get<int64_t>();
}

// The members of a list; none if there is no list.
const Json& list(const Json& record, const char* key) {
  static const Json kNone = Json::array();
  const auto found = record.find(key);
  return found != record.end() && found->is_array() ? *found : kNone;
}

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

void StepHistory::take(std::string_view line) {
  const Json record = records::shallow_json(records::without_samples(line));
  if (!record.is_object()) return;
  const auto step = whole(record, "step", kLargestCount);
  if (!step) return;
  std::array<double, kStepColumns.size()> values{};
  std::ranges::transform(kStepColumns, values.begin(), [&](const char* column) {
    return number(record, column);
  });
  // Each group of parameters has a learning rate; the first is drawn.
  const Json& rates = list(record, "lr");
  if (!rates.empty() && rates[0].is_number()) {
    values[static_cast<size_t>(StepColumn::kLr)] = rates[0];
  }
  values[static_cast<size_t>(StepColumn::kSkipped)] =
      record.contains("update_skipped") && record["update_skipped"] == true;
  steps_.add(*step, values);
  num_steps_ = *step + 1;
  epoch_samples_ = whole(record, "epoch_samples", kLargestCount).value_or(0);
  for (const Json& bytes : list(record, "memory")) {
    const auto rank =
        bytes.is_object() ? whole(bytes, "rank", kMostRanks - 1) : std::nullopt;
    if (!rank) continue;
    memory_of(static_cast<int>(*rank))
        .add(*step, std::array{number(bytes, "predicted_peak_bytes"),
                               number(bytes, "measured_peak_bytes")});
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
