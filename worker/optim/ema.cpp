#include "worker/optim/ema.h"

#include <cmath>

#include "worker/optim/optimizer.h"

namespace headroom::optim {

double ema_decay(int64_t updates) {
  return 0.9999 * (1 - std::exp(-static_cast<double>(updates) / 2000));
}

void ema_update(const at::Tensor& average, const at::Tensor& value,
                int64_t updates) {
  check_flat_pair("average", average, "value", value);
  HEADROOM_CHECK(updates >= 1, "update " + std::to_string(updates));
  average.lerp_(value, 1 - ema_decay(updates));
}

}  // namespace headroom::optim
