#include "worker/data/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::sampling {
namespace {

// Four rounds are enough for large domains; small ones need more. The cost is
// negligible compared with decoding an image.
constexpr uint32_t kFeistelRounds = 12;

}  // namespace

Permutation::Permutation(uint64_t seed, int64_t epoch, int64_t n)
    : key_(philox_key(seed)), epoch_(static_cast<uint32_t>(epoch)), n_(n) {
  HEADROOM_CHECK(n > 0 && n >> 56 == 0, cat("n ", n));
  HEADROOM_CHECK(epoch >= 0 && epoch >> 32 == 0, cat("epoch ", epoch));
  while (int64_t{1} << (2 * half_bits_) < n) ++half_bits_;
}

int64_t Permutation::operator()(int64_t position) const {
  HEADROOM_CHECK(position >= 0 && position < n_,
                 cat("position ", position, " of ", n_));
  auto value = static_cast<uint64_t>(position);
  do {
    value = encrypt(value);
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint32_t round = 0; round < kFeistelRounds; ++round) {
    const PhiloxCounter words =
        philox4x32({static_cast<uint32_t>(right), epoch_, round,
                    static_cast<uint32_t>(RandomPurpose::kPermutation) << 24},
                   key_);
    const uint64_t mixed = left ^ (words[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

std::vector<int64_t> chosen_part(uint64_t seed, double fraction, int64_t n) {
  HEADROOM_CHECK(fraction > 0 && fraction <= 1,
                 cat("a fraction of ", fraction));
  constexpr int64_t kNoEpoch = 0xffffffff;
  const Permutation order(seed, kNoEpoch, n);
  const int64_t count =
      std::max<int64_t>(1, std::llround(fraction * static_cast<double>(n)));
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) chosen.push_back(order(i));
  std::ranges::sort(chosen);
  return chosen;
}

double weighted_draw(uint64_t seed, int64_t epoch, int64_t position) {
  RandomStream draws(seed, static_cast<uint64_t>(epoch),
                     static_cast<uint64_t>(position),
                     RandomPurpose::kWeightedSample);
  return draws.uniform();
}

WeightedSampler::WeightedSampler(uint64_t seed,
                                 const std::vector<double>& weights)
    : seed_(seed) {
  double sum = 0;
  for (const double weight : weights) {
    HEADROOM_CHECK(std::isfinite(weight) && weight >= 0,
                   cat("a weight of ", weight));
    sums_.push_back(sum += weight);
  }
  HEADROOM_CHECK(sum > 0 && std::isfinite(sum), "no sample has a weight");
  last_ = std::lower_bound(sums_.begin(), sums_.end(), sum) - sums_.begin();
}

int64_t WeightedSampler::sample(int64_t epoch, int64_t position) const {
  const double drawn = weighted_draw(seed_, epoch, position) * sums_.back();
  // Rounding can make the product equal to the whole sum; then the last sample
  // with a positive weight is taken.
  return std::upper_bound(sums_.begin(), sums_.begin() + last_, drawn) -
         sums_.begin();
}

int64_t steps_per_epoch(int64_t num_samples, int64_t global_batch_size) {
  HEADROOM_CHECK(
      num_samples > 0 && global_batch_size > 0,
      cat(num_samples, " samples in batches of ", global_batch_size));
  return (num_samples - 1) / global_batch_size + 1;
}

EpochStep epoch_step(int64_t step, int64_t num_samples,
                     int64_t global_batch_size) {
  HEADROOM_CHECK(step >= 0, cat("step ", step));
  const int64_t steps = steps_per_epoch(num_samples, global_batch_size);
  EpochStep result;
  result.epoch = step / steps;
  result.step = step % steps;
  result.positions.begin = result.step * global_batch_size;
  result.positions.end =
      std::min(num_samples, result.positions.begin + global_batch_size);
  return result;
}

std::vector<int64_t> samples_at(const EpochOrder& order,
                                const plan::SampleRange& positions) {
  std::vector<int64_t> samples;
  samples.reserve(static_cast<size_t>(positions.size()));
  for (int64_t i = positions.begin; i < positions.end; ++i) {
    samples.push_back(order(i));
  }
  return samples;
}

std::vector<int64_t> shuffled_samples(uint64_t seed, const EpochStep& step,
                                      int64_t num_samples) {
  return samples_at(Permutation(seed, step.epoch, num_samples), step.positions);
}

}  // namespace headroom::sampling
