// ValueRanges: which numbers each value of a network takes, seen on images, and
// from that the range that 8 bits should cover.
//
// Two passes over the same images: smallest and largest, then a histogram of
// 2,048 bins between them. The range is the one of least mean squared error:
// each end is moved in while what is cut off there (the square of how far it is
// moved) costs less than the finer steps win (the square of a step over 12).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

namespace headroom::exporter {

struct ValueRange {
  double low = 0, high = 0;  // 0 lies within
};

class ValueRanges {
 public:
  void see_extremes(const std::string& name, const at::Tensor& values);
  // REQUIRES: see_extremes has seen the same.
  void count(const std::string& name, const at::Tensor& values);
  // The range of every value seen.
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
