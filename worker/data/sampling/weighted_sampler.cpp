#include "worker/data/sampling/weighted_sampler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "parallel/base/check.h"
#include "worker/data/sampling/random.h"

namespace headroom::sampling {

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
                   "a weight of " + std::to_string(weight));
    sums_.push_back(sum += weight);
  }
  HEADROOM_CHECK(sum > 0 && std::isfinite(sum), "no sample has a weight");
  last_ = std::lower_bound(sums_.begin(), sums_.end(), sum) - sums_.begin();
}

int64_t WeightedSampler::sample(int64_t epoch, int64_t position) const {
  const double drawn = weighted_draw(seed_, epoch, position) * sums_.back();
  // Where rounding makes the product the whole sum it is the last.
  return std::upper_bound(sums_.begin(), sums_.begin() + last_, drawn) -
         sums_.begin();
}

}  // namespace headroom::sampling
