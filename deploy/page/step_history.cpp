#include "deploy/page/step_history.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "parallel/base/run_files.h"

namespace headroom::page {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostSteps = 12'288;
// The greatest number of points for all ranks' memory, and for one rank.
constexpr size_t kMostMemoryPoints = 131'072;
constexpr size_t kMostMemoryOfRank = 4096;
constexpr size_t kLeastMemoryOfRank = 64;
constexpr int kMostRanks = 4096;

struct RankBytes {
  int rank = -1;
  double predicted = kUnknown, measured = kUnknown;
};

// Parses the members of a line that pictures need. A line also lists all
// samples of the step, so no tree of it is built.
class LineReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::optional<int64_t> step;
  std::array<double, kStepColumns.size()> values;
  int64_t epoch_samples = 0;
  std::vector<RankBytes> memory;

  LineReader() {
    values.fill(kUnknown);
    values.back() = 0;
  }

  bool null() override { return true; }
  bool boolean(bool value) override {
    if (depth_ == 1 && key_ == "update_skipped") values.back() = value ? 1 : 0;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return number(value);
  }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    if (depth_ == 2 && outer_ == "memory") memory.emplace_back();
    return ++depth_ < kDeepest;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0 || (depth_ == 2 && outer_ == "memory")) return false;
    if (depth_ == 1) outer_ = key_;
    return ++depth_ < kDeepest;
  }
  bool end_array() override {
    --depth_;
    if (depth_ == 1) outer_.clear();
    return true;
  }
  bool key(string_t& name) override {
    key_ = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  static constexpr int kDeepest = 16;

  bool number(double value) {
    if (depth_ == 1) {
      if (key_ == "step") {
        if (value < 0 || value != std::floor(value) || value > 1e15)
          return false;
        step = static_cast<int64_t>(value);
      } else if (key_ == "epoch_samples") {
        epoch_samples = static_cast<int64_t>(std::clamp(value, 0.0, 1e15));
      } else {
        for (size_t i = 0; i + 1 < kStepColumns.size(); ++i)
          if (key_ == kStepColumns[i]) values[i] = value;
      }
    } else if (depth_ == 2 && outer_ == "lr") {
      // Shows the learning rate of the first group only.
      double& lr = values[static_cast<size_t>(StepColumn::kLr)];
      if (std::isnan(lr)) lr = value;
    } else if (depth_ == 3 && outer_ == "memory") {
      RankBytes& rank = memory.back();
      if (key_ == "rank") {
        rank.rank =
            value >= 0 && value < kMostRanks ? static_cast<int>(value) : -1;
      }
      if (key_ == "predicted_peak_bytes") rank.predicted = value;
      if (key_ == "measured_peak_bytes") rank.measured = value;
    }
    return true;
  }

  int depth_ = 0;
  std::string key_;
  std::string outer_;  // the list of the record that contains the value
};

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
  corrupt_lines_ = 0;
}

void StepHistory::take(std::string_view line) {
  LineReader record;
  const bool is_whole =
      nlohmann::json::sax_parse(line.begin(), line.end(), &record);
  if (!is_whole || !record.step) {
    ++corrupt_lines_;
    return;
  }
  steps_.add(*record.step, record.values);
  num_steps_ = *record.step + 1;
  epoch_samples_ = record.epoch_samples;
  for (const RankBytes& bytes : record.memory) {
    if (bytes.rank < 0) continue;
    const auto [place, is_new] =
        memory_.try_emplace(bytes.rank, DecimatedSeries(2, kMostMemoryOfRank));
    if (is_new) {
      const size_t capacity = std::clamp(kMostMemoryPoints / memory_.size(),
                                         kLeastMemoryOfRank, kMostMemoryOfRank);
      for (auto& [rank, series] : memory_) series.set_capacity(capacity);
    }
    place->second.add(*record.step,
                      std::array{bytes.predicted, bytes.measured});
  }
}

double StepHistory::newest(StepColumn column) const {
  return steps_.size() == 0 ? kUnknown
                            : steps_.point(steps_.size() - 1)
                                  .values[static_cast<size_t>(column)];
}

}  // namespace headroom::page
