#include "worker/export/value_ranges.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/histc.h>

#include <algorithm>
#include <cstdint>

namespace headroom::exporter {
namespace {

constexpr int64_t kBins = 2048;
constexpr int kTries = 64;      // positions tried for each end
constexpr double kSteps = 255;  // number of steps in 8 bits

// The mean squared error over all values if 8 bits cover [from, to].
double error_of(double low, double width, const std::vector<double>& bins,
                double from, double to) {
  const double step = (to - from) / kSteps;
  double error = 0;
  for (size_t i = 0; i < bins.size(); ++i) {
    if (bins[i] == 0) continue;
    const double value = low + (static_cast<double>(i) + 0.5) * width;
    const double beyond = std::max({from - value, value - to, 0.0});
    error += bins[i] * (beyond > 0 ? beyond * beyond : step * step / 12);
  }
  return error;
}

}  // namespace

ValueRange least_error_range(double low, double high,
                             const std::vector<double>& bins) {
  const double width = (high - low) / static_cast<double>(bins.size());
  ValueRange best = {std::min(low, 0.0), std::max(high, 0.0)};
  double least = error_of(low, width, bins, best.low, best.high);
  const ValueRange whole = best;
  const auto try_range = [&](double from, double to) {
    if (to <= from) return;
    const double error = error_of(low, width, bins, from, to);
    if (error < least) {
      least = error;
      best = {from, to};
    }
  };
  for (int i = 1; i < kTries; ++i) {
    try_range(best.low, whole.high * i / kTries);
  }
  for (int i = 1; i < kTries; ++i) {
    try_range(whole.low * i / kTries, best.high);
  }
  return best;
}

void ValueRanges::see_extremes(const std::string& name,
                               const at::Tensor& values) {
  const auto [least, most] = at::aminmax(values);
  const auto [place, is_new] = seen_.try_emplace(name);
  Seen& seen = place->second;
  const double low = least.item<double>(), high = most.item<double>();
  seen.low = is_new ? low : std::min(seen.low, low);
  seen.high = is_new ? high : std::max(seen.high, high);
}

void ValueRanges::count(const std::string& name, const at::Tensor& values) {
  Seen& seen = seen_.at(name);
  if (seen.low == seen.high) return;
  seen.bins.resize(kBins, 0);
  const at::Tensor counts =
      at::histc(values, kBins, seen.low, seen.high).to(at::kDouble);
  const double* counted = counts.const_data_ptr<double>();
  for (size_t i = 0; i < seen.bins.size(); ++i) seen.bins[i] += counted[i];
}

std::map<std::string, ValueRange> ValueRanges::ranges() const {
  std::map<std::string, ValueRange> all;
  for (const auto& [name, seen] : seen_) {
    all[name] =
        seen.bins.empty()
            ? ValueRange{std::min(seen.low, 0.0), std::max(seen.high, 0.0)}
            : least_error_range(seen.low, seen.high, seen.bins);
  }
  return all;
}

}  // namespace headroom::exporter
