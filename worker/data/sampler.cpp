#include "worker/data/sampler.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "worker/data/permutation.h"

namespace headroom {

int64_t steps_per_epoch(int64_t num_samples, int64_t global_batch_size) {
  HEADROOM_CHECK(num_samples > 0 && global_batch_size > 0,
                 std::to_string(num_samples) + " samples in batches of " +
                     std::to_string(global_batch_size));
  return (num_samples - 1) / global_batch_size + 1;
}

EpochStep epoch_step(int64_t step, int64_t num_samples,
                     int64_t global_batch_size) {
  HEADROOM_CHECK(step >= 0, "step " + std::to_string(step));
  const int64_t steps = steps_per_epoch(num_samples, global_batch_size);
  EpochStep result;
  result.epoch = step / steps;
  result.step = step % steps;
  result.positions.begin = result.step * global_batch_size;
  result.positions.end =
      std::min(num_samples, result.positions.begin + global_batch_size);
  return result;
}

RankSamples shuffled_samples(uint64_t seed, const EpochStep& step,
                             int64_t num_samples, int data_parallel_size,
                             int data_parallel_rank) {
  const Permutation order(seed, step.epoch, num_samples);
  RankSamples result;
  result.local =
      share_of(step.positions.size(), data_parallel_size, data_parallel_rank);
  for (int64_t i = result.local.begin; i < result.local.end; ++i) {
    result.samples.push_back(order(step.positions.begin + i));
  }
  return result;
}

RankSamples ordered_samples(const EpochStep& step,
                            const std::vector<int64_t>& order,
                            int data_parallel_size, int data_parallel_rank) {
  RankSamples result;
  result.local =
      share_of(step.positions.size(), data_parallel_size, data_parallel_rank);
  for (int64_t i = result.local.begin; i < result.local.end; ++i) {
    result.samples.push_back(order[step.positions.begin + i]);
  }
  return result;
}

}  // namespace headroom
