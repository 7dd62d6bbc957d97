#include "configs/multi_scale.h"

#include <algorithm>

#include "configs/layers/layer_cost.h"
#include "parallel/base/units.h"

namespace headroom::configs {
namespace {

constexpr int64_t kLeastStrides = 2;

// The smallest size of the longer side, in strides.
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

std::vector<InputSize> input_sizes(const RunConfig& config, int64_t stride) {
  const InputSize asked{layers::rounded_image_size(config.image_height, stride),
                        layers::rounded_image_size(config.image_width, stride)};
  if (!config.multi_scale) return {asked};
  std::vector<InputSize> sizes;
  for (int64_t i = 0; i < num_input_sizes(asked, stride); ++i) {
    sizes.push_back(input_size(asked, stride, i));
  }
  return sizes;
}

double mean_pixels(const RunConfig& config, int64_t stride) {
  const std::vector<InputSize> sizes = input_sizes(config, stride);
  double sum = 0;
  for (const InputSize& size : sizes) {
    sum += static_cast<double>(size.height) * static_cast<double>(size.width);
  }
  return sum / static_cast<double>(sizes.size());
}

InputSize largest_input_size(const RunConfig& config, int64_t stride) {
  return input_sizes(config, stride).back();
}

}  // namespace headroom::configs
