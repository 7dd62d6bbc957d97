#include "worker/model/initialisation.h"

#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/empty.h>
#include <xxhash.h>

#include <cmath>

namespace headroom::model {

at::Tensor uniform_values(const InitialisationKey& key, at::IntArrayRef sizes,
                          double bound, at::ScalarType scalar_type) {
  const uint64_t stream = XXH3_64bits(key.name.data(), key.name.size());
  at::philox_engine engine(key.seed, stream);
  at::Tensor values = at::empty(sizes, at::kFloat);
  float* out = values.data_ptr<float>();
  const auto scale = static_cast<float>(bound);
  for (int64_t i = 0; i < values.numel(); ++i) {
    // 24 bits are all that a float holds, so no rounding reaches +bound.
    const auto signed_bits =
        static_cast<int32_t>(engine() >> 8) - (int32_t{1} << 23);
    out[i] = scale * (static_cast<float>(signed_bits) * 0x1p-23f);
  }
  return values.to(scalar_type);
}

double kaiming_bound(int64_t fan_in) {
  return 1 / std::sqrt(static_cast<double>(fan_in));
}

}  // namespace headroom::model
