#include "worker/data/loader/rect_batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace headroom::loader {

RectBatches make_rect_batches(const std::vector<codecs::ImageSize>& sizes,
                              const RectOptions& options) {
  const auto aspect_of = [&](int64_t image) {
    return static_cast<double>(sizes[image].height) / sizes[image].width;
  };
  const auto height = static_cast<double>(options.height);
  const auto width = static_cast<double>(options.width);
  RectBatches result;
  const auto count = static_cast<int64_t>(sizes.size());
  result.order.resize(sizes.size());
  std::iota(result.order.begin(), result.order.end(), int64_t{0});
  std::stable_sort(
      result.order.begin(), result.order.end(),
      [&](int64_t a, int64_t b) { return aspect_of(a) < aspect_of(b); });

  for (int64_t begin = 0; begin < count; begin += options.batch_size) {
    const int64_t end = std::min(count, begin + options.batch_size);
    const double flattest = aspect_of(result.order[begin]);
    const double tallest = aspect_of(result.order[end - 1]);
    const double network = height / width;
    const auto padded = [&](double side) {
      return static_cast<int64_t>(std::ceil(
                 side / static_cast<double>(options.stride) + options.pad)) *
             options.stride;
    };
    // A flat image fills the width, a tall one the height.
    RectBatches::Shape shape;
    shape.height = padded(tallest < network ? tallest * width : height);
    shape.width = padded(flattest > network ? 1 / flattest * height : width);
    result.shapes.push_back(shape);
  }
  return result;
}

}  // namespace headroom::loader
