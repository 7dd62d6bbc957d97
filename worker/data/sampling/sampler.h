// Sampler: decides which samples a training step uses.
//
// A pure function of (seed, step, number of samples, global batch);
// parallel/plan/batch_split.h divides the result between ranks. In every epoch
// each sample is used exactly once, unless samples are drawn by weight. The
// last batch of an epoch may be short.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/plan/batch_split.h"
#include "worker/data/sampling/random.h"

namespace headroom::sampling {

// Permutation: the order of an epoch's samples, without storing a list.
//
// Maps position to sample by a keyed bijection: a Feistel network over the
// smallest even number of bits that holds n, applied repeatedly until the
// result is below n (Black and Rogaway, "Ciphers with arbitrary finite
// domains", 2002). Any rank can compute any position of any epoch, in any
// order, in O(1) memory.
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

// Returns max(1, round(fraction * n)) of the numbers 0..n-1, ascending. They
// come first in the order of an epoch that no run reaches, so every process
// chooses the same numbers. REQUIRES: 0 < fraction <= 1, n > 0.
std::vector<int64_t> chosen_part(uint64_t seed, double fraction, int64_t n);

// WeightedSampler: draws the samples of an epoch with replacement, with
// probabilities in proportion to their weights (--image-weights).
//
// Maps position to sample without storing a list. A number u in [0, 1) is
// computed from (seed, epoch, position), and the sample is found by looking u
// up in the table of summed weights:
//
//   weights   2     0  1   3        u x 6 = 2.4 draws the third
//   sums      2     2  3   6        a sample of weight 0 is never drawn
//
// So any rank can compute any position of any epoch in O(log n). The table
// takes 8 bytes per sample. With the same table, a larger u never gives an
// earlier sample; a ledger can check this without the weights.
//
// weighted_draw() returns the number u.
double weighted_draw(uint64_t seed, int64_t epoch, int64_t position);

class WeightedSampler {
 public:
  // REQUIRES: weights are finite and >= 0, and at least one is > 0.
  WeightedSampler(uint64_t seed, const std::vector<double>& weights);

  // REQUIRES: 0 <= position < size().
  int64_t sample(int64_t epoch, int64_t position) const;

  int64_t size() const { return static_cast<int64_t>(sums_.size()); }

 private:
  const uint64_t seed_;
  std::vector<double> sums_;
  int64_t last_ = 0;  // index of the last sample with a positive weight
};

// REQUIRES: num_samples > 0, global_batch_size > 0.
int64_t steps_per_epoch(int64_t num_samples, int64_t global_batch_size);

// The position of a run's step within its epoch.
struct EpochStep {
  int64_t epoch = 0;
  int64_t step = 0;             // number of the step within the epoch
  plan::SampleRange positions;  // positions in the epoch's order
};
EpochStep epoch_step(int64_t step, int64_t num_samples,
                     int64_t global_batch_size);

// The order of an epoch's samples: the sample at each position, as an index
// into the data set. A Permutation is one. A rank evaluates only the positions
// that it needs, so its work does not grow with the batch of all ranks.
using EpochOrder = std::function<int64_t(int64_t position)>;

std::vector<int64_t> samples_at(const EpochOrder& order,
                                const plan::SampleRange& positions);

// The samples at a step's positions in the order of the epoch's permutation.
std::vector<int64_t> shuffled_samples(uint64_t seed, const EpochStep& step,
                                      int64_t num_samples);

}  // namespace headroom::sampling
