// WeightedSampler: the samples of an epoch drawn with replacement, each as
// likely as its weight says (--image-weights).
//
// Position -> sample, without a list of them: a number u in [0, 1) follows from
// (seed, epoch, position), and the sample is where u falls in the table of
// summed weights:
//
//   weights   2     0  1   3        u x 6 = 2.4 draws the third
//   sums      2     2  3   6        what has no weight is never drawn
//
// So any rank can ask for any position of any epoch in O(log n); the table
// costs 8 bytes a sample. With one table samples rise with u: that is what a
// ledger can check that knows no weights.
//
// Threads: immutable.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::sampling {

// u above.
double weighted_draw(uint64_t seed, int64_t epoch, int64_t position);

class WeightedSampler {
 public:
  // REQUIRES: weights are finite and >= 0, and one is > 0.
  WeightedSampler(uint64_t seed, const std::vector<double>& weights);

  // REQUIRES: 0 <= position < size().
  int64_t sample(int64_t epoch, int64_t position) const;

  int64_t size() const { return static_cast<int64_t>(sums_.size()); }

 private:
  const uint64_t seed_;
  std::vector<double> sums_;
  int64_t last_ = 0;  // that has a weight
};

}  // namespace headroom::sampling
