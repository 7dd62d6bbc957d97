// Sampler: which samples a training step uses, and which of them a rank makes.
//
// Pure: a function of (seed, step, number of samples, global batch, ranks).
// In every epoch each sample is used exactly once, whatever the number of
// ranks; the last batch of an epoch may be short.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/plan/batch_split.h"

namespace headroom {

// REQUIRES: num_samples > 0, global_batch_size > 0.
int64_t steps_per_epoch(int64_t num_samples, int64_t global_batch_size);

// Where step `step` of a run stands.
struct EpochStep {
  int64_t epoch = 0;
  int64_t step = 0;       // within the epoch
  SampleRange positions;  // of the epoch's order
};
EpochStep epoch_step(int64_t step, int64_t num_samples,
                     int64_t global_batch_size);

// A rank's part of a global batch of `positions`.
struct RankSamples {
  SampleRange local;             // counted from the batch's first sample
  std::vector<int64_t> samples;  // local.size() indices into the data set
};

// Samples in the order of the epoch's permutation.
RankSamples shuffled_samples(uint64_t seed, const EpochStep& step,
                             int64_t num_samples, int data_parallel_size,
                             int data_parallel_rank);

// Samples in a fixed order, the same in every epoch.
RankSamples ordered_samples(const EpochStep& step,
                            const std::vector<int64_t>& order,
                            int data_parallel_size, int data_parallel_rank);

}  // namespace headroom
