// Sampler: which samples a training step uses.
//
// Pure: a function of (seed, step, number of samples, global batch); ranks
// share them out by parallel/plan/batch_split.h. In every epoch each sample is
// used exactly once, unless they are drawn by weight; the last batch of an
// epoch may be short.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/plan/batch_split.h"
#include "worker/data/sampling/random.h"

namespace headroom::sampling {

// Permutation: the order of an epoch's samples, without a list of them.
//
// Position -> sample by a keyed bijection: a Feistel network over the smallest
// even number of bits that holds n, walked along its cycle until it lands
// below n (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
// Any rank can ask for any position of any epoch, in any order, in O(1) memory.
class Permutation {
 public:
  // REQUIRES: 0 < n < 2^56, epoch < 2^32.
  Permutation(uint64_t seed, int64_t epoch, int64_t n);

  // REQUIRES: 0 <= position < n. A bijection of 0..n-1.
  int64_t operator()(int64_t position) const;

 private:
  uint64_t encrypt(uint64_t value) const;

  PhiloxKey key_;
  uint32_t epoch_ = 0;
  int64_t n_ = 0;
  int half_bits_ = 1;
};

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
// weighted_draw() is the number u.
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
  int64_t last_ = 0;  // the last that has a weight
};

// REQUIRES: num_samples > 0, global_batch_size > 0.
int64_t steps_per_epoch(int64_t num_samples, int64_t global_batch_size);

// The place of step `step` of a run.
struct EpochStep {
  int64_t epoch = 0;
  int64_t step = 0;             // its number within the epoch
  plan::SampleRange positions;  // positions of the epoch's order
};
EpochStep epoch_step(int64_t step, int64_t num_samples,
                     int64_t global_batch_size);

// The samples of a step's positions: indices into the data set, in the order of
// the epoch's permutation.
std::vector<int64_t> shuffled_samples(uint64_t seed, const EpochStep& step,
                                      int64_t num_samples);

// A step's samples drawn by weight: a sample may come again.
std::vector<int64_t> weighted_samples(const WeightedSampler& weights,
                                      const EpochStep& step);

// A step's samples in a fixed order, equal in every epoch.
std::vector<int64_t> ordered_samples(const EpochStep& step,
                                     const std::vector<int64_t>& order);

}  // namespace headroom::sampling
