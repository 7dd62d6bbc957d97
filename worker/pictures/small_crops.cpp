#include "worker/pictures/small_crops.h"

#include <algorithm>
#include <cmath>

#include "worker/data/augment/letterbox.h"
#include "worker/data/codecs/image_bands.h"

namespace headroom::pictures {
namespace {

// The rows of a window, of the 64 MiB that pictures may take.
constexpr int64_t kMostPixels = int64_t{1} << 24;

codecs::ImageLimits limits_of_pictures(int bands) {
  codecs::ImageLimits limits;
  limits.max_pixels = kMostPixels;  // with more bands fewer (image_bands.h)
  limits.bands = bands;
  return limits;
}

double ratio(int64_t small, int64_t large) {
  return static_cast<double>(small) / static_cast<double>(large);
}

int32_t scaled(int32_t side, double by) {
  return std::max<int32_t>(1, static_cast<int32_t>(std::lround(side * by)));
}

}  // namespace

SmallCrops::SmallCrops(const loader::LoaderOptions& options,
                       augment::ImageSource& whole,
                       const augment::SampleId& made, int64_t height,
                       int64_t width)
    : crops_(*options.dataset, whole, made, options.image_height,
             options.image_width, limits_of_pictures(options.bands)),
      whole_(whole),
      ratio_y_(ratio(height, options.image_height)),
      ratio_x_(ratio(width, options.image_width)) {}

codecs::ImageSize SmallCrops::loaded_size(int64_t sample) const {
  if (!crops_.is_cut(sample)) return whole_.loaded_size(sample);
  const codecs::ImageSize window = crops_.loaded_size(sample);
  return {scaled(window.height, ratio_y_), scaled(window.width, ratio_x_)};
}

augment::LoadedImage SmallCrops::load(int64_t sample, codecs::PixelRows rows) {
  if (!crops_.is_cut(sample)) return whole_.load(sample, rows);
  const codecs::ImageSize size = loaded_size(sample);
  augment::LoadedImage image = crops_.load(sample, codecs::kAllRows);
  rows = codecs::clamp_rows(rows, size.height);
  image.pixels =
      augment::resize_loaded(codecs::shown_colours(image.pixels), size, false)
          .rowRange(static_cast<int>(rows.begin), static_cast<int>(rows.end));
  return image;
}

}  // namespace headroom::pictures
