// Sampler: which samples a training step uses.
//
// Pure: a function of (seed, step, number of samples, global batch); ranks
// share them out by parallel/plan/batch_split.h. In every epoch each sample is
// used exactly once, unless they are drawn by weight (weighted_sampler.h); the
// last batch of an epoch may be short.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/plan/batch_split.h"

namespace headroom::sampling {

class WeightedSampler;

// REQUIRES: num_samples > 0, global_batch_size > 0.
int64_t steps_per_epoch(int64_t num_samples, int64_t global_batch_size);

// Where step `step` of a run stands.
struct EpochStep {
  int64_t epoch = 0;
  int64_t step = 0;             // within the epoch
  plan::SampleRange positions;  // of the epoch's order
};
EpochStep epoch_step(int64_t step, int64_t num_samples,
                     int64_t global_batch_size);

// The samples of a step's positions: indices into the data set, in the order of
// the epoch's permutation.
std::vector<int64_t> shuffled_samples(uint64_t seed, const EpochStep& step,
                                      int64_t num_samples);

// The same drawn by weight: a sample may come again.
std::vector<int64_t> weighted_samples(const WeightedSampler& weights,
                                      const EpochStep& step);

// The same in a fixed order, equal in every epoch.
std::vector<int64_t> ordered_samples(const EpochStep& step,
                                     const std::vector<int64_t>& order);

}  // namespace headroom::sampling
