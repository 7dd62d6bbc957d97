#include "worker/validate.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <cstring>
#include <type_traits>
#include <utility>

#include "parallel/base/check.h"
#include "worker/gather.h"
#include "worker/metrics/average_precision.h"
#include "worker/metrics/box_mapping.h"
#include "worker/metrics/coco_ap.h"
#include "worker/metrics/nms.h"
#include "worker/network_input.h"

namespace headroom {
namespace {

// What one rank found in its share, as plain arrays.
struct Findings {
  std::vector<ImageDetections> images;
  double box = 0, obj = 0, cls = 0;  // sums over batches
  int64_t batches = 0;
  std::vector<std::string> faults;
};

template <typename T>
std::string to_bytes(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

}  // namespace

}  // namespace headroom
