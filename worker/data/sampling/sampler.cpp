#include "worker/data/sampling/sampler.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "worker/data/sampling/permutation.h"
#include "worker/data/sampling/weighted_sampler.h"

namespace headroom::sampling {

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

std::vector<int64_t> shuffled_samples(uint64_t seed, const EpochStep& step,
                                      int64_t num_samples) {
  const Permutation order(seed, step.epoch, num_samples);
  std::vector<int64_t> samples;
  for (int64_t i = step.positions.begin; i < step.positions.end; ++i) {
    samples.push_back(order(i));
  }
  return samples;
}

std::vector<int64_t> weighted_samples(const WeightedSampler& weights,
                                      const EpochStep& step) {
  std::vector<int64_t> samples;
  for (int64_t i = step.positions.begin; i < step.positions.end; ++i) {
    samples.push_back(weights.sample(step.epoch, i));
  }
  return samples;
}

std::vector<int64_t> ordered_samples(const EpochStep& step,
                                     const std::vector<int64_t>& order) {
  return {order.begin() + step.positions.begin,
          order.begin() + step.positions.end};
}

}  // namespace headroom::sampling
