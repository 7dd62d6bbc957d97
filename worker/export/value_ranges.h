// ValueRanges: collects the distribution of each value of a network over
// images, and chooses the range that 8 bits should cover.
//
// Needs two passes over the same images: first the extremes, then a histogram
// of 2,048 bins between them. The chosen range has the least mean squared
// error: an end is moved inwards as long as the error of the clipped values
// (their distance squared) is less than the gain from finer steps (a step
// squared over 12).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

namespace headroom::exporter {

struct ValueRange {
  double low = 0, high = 0;  // always includes 0
};

class ValueRanges {
 public:
  void see_extremes(const std::string& name, const at::Tensor& values);
  // REQUIRES: see_extremes was called with the same values.
  void count(const std::string& name, const at::Tensor& values);
  // The range of every value.
  std::map<std::string, ValueRange> ranges() const;

 private:
  struct Seen {
    double low = 0, high = 0;
    std::vector<double> bins;
  };
  std::map<std::string, Seen> seen_;
};

// The range for a histogram of equal bins from `low` to `high`.
ValueRange least_error_range(double low, double high,
                             const std::vector<double>& bins);

}  // namespace headroom::exporter
