// Figures of repeated measurements.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace headroom {

// `place` 0 is the smallest value, 0.5 the median, 1 the largest.
inline double quantile(std::vector<double> values, double place) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(place * last + 0.5)];
}

inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

template <typename Work>
double seconds_of(const Work& work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Measurements of two programs that took turns; each pair gives a ratio.
struct Pairs {
  std::vector<double> first, second;  // seconds

  std::vector<double> ratios() const {
    std::vector<double> ratios;
    for (size_t i = 0; i < first.size(); ++i) {
      ratios.push_back(first[i] / second[i]);
    }
    return ratios;
  }
};

// Prints the median ratio with its quartiles; returns whether it is at most
// `bound`.
inline bool report(const std::string& name, const Pairs& pairs, double bound) {
  const std::vector<double> ratios = pairs.ratios();
  const bool is_kept = median(ratios) <= bound;
  std::printf(
      "%-48s median ratio %.3f (quartiles %.3f to %.3f), bound %.2f: %s; %zu "
      "pairs of %.1f and %.1f ms\n",
      name.c_str(), median(ratios), quantile(ratios, 0.25),
      quantile(ratios, 0.75), bound, is_kept ? "kept" : "MISSED", ratios.size(),
      1e3 * median(pairs.first), 1e3 * median(pairs.second));
  std::fflush(stdout);
  return is_kept;
}

}  // namespace headroom
