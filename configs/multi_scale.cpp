#include "configs/multi_scale.h"

#include <algorithm>

#include "configs/row_cost.h"

namespace headroom {
namespace {

constexpr int64_t kLeastStrides = 2;

int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Of the longer side, in strides.
int64_t least_strides(InputSize size, int64_t stride) {
  return std::max(kLeastStrides,
                  divided_up(std::max(size.height, size.width), 2 * stride));
}

}  // namespace

int64_t num_input_sizes(InputSize size, int64_t stride) {
  const int64_t most = 3 * std::max(size.height, size.width) / (2 * stride);
  return most - least_strides(size, stride) + 1;
}

InputSize input_size(InputSize size, int64_t stride, int64_t index) {
  const int64_t longer = std::max(size.height, size.width);
  const int64_t strides = least_strides(size, stride) + index;
  const auto scaled = [&](int64_t side) {
    return std::max(kLeastStrides, divided_up(side * strides, longer)) * stride;
  };
  return {scaled(size.height), scaled(size.width)};
}

InputSize largest_input_size(InputSize size, int64_t stride) {
  return input_size(size, stride, num_input_sizes(size, stride) - 1);
}

InputSize largest_input_size(const RunConfig& config, int64_t stride) {
  const InputSize size{rounded_image_size(config.image_height, stride),
                       rounded_image_size(config.image_width, stride)};
  return config.multi_scale ? largest_input_size(size, stride) : size;
}

}  // namespace headroom
