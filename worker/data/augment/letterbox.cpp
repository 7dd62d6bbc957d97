#include "worker/data/augment/letterbox.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>

#include "worker/data/codecs/image_bands.h"

namespace headroom::augment {
namespace {

// Rounds half to even, like Python.
int64_t round_even(double value) {
  return static_cast<int64_t>(std::nearbyint(value));
}

}  // namespace

codecs::ImageSize fit_size(codecs::ImageSize source, int64_t height,
                           int64_t width) {
  const double ratio = std::min(static_cast<double>(height) / source.height,
                                static_cast<double>(width) / source.width);
  const auto scaled = [&](int32_t side, int64_t limit) {
    const auto rounded = static_cast<int64_t>(std::ceil(side * ratio));
    return static_cast<int32_t>(std::clamp<int64_t>(rounded, 1, limit));
  };
  return {scaled(source.height, height), scaled(source.width, width)};
}

cv::Mat resize_loaded(const cv::Mat& pixels, codecs::ImageSize size,
                      bool bilinear) {
  if (pixels.rows == size.height && pixels.cols == size.width) return pixels;
  const bool enlarges = size.height > pixels.rows || size.width > pixels.cols;
  cv::Mat resized(size.height, size.width, pixels.type());
  codecs::resize_bands(
      pixels, resized,
      bilinear || enlarges ? cv::INTER_LINEAR : cv::INTER_AREA);
  return resized;
}

Letterbox letterbox_geometry(codecs::ImageSize source, int64_t height,
                             int64_t width, const LetterboxOptions& options) {
  Letterbox box;
  double ratio = std::min(static_cast<double>(height) / source.height,
                          static_cast<double>(width) / source.width);
  if (!options.enlarge) ratio = std::min(ratio, 1.0);
  box.ratio_x = ratio;
  box.ratio_y = ratio;
  box.resized_height = round_even(source.height * ratio);
  box.resized_width = round_even(source.width * ratio);
  int64_t pad_x = width - box.resized_width;
  int64_t pad_y = height - box.resized_height;
  if (options.stretch) {
    pad_x = 0;
    pad_y = 0;
    box.resized_height = height;
    box.resized_width = width;
    box.ratio_x = static_cast<double>(width) / source.width;
    box.ratio_y = static_cast<double>(height) / source.height;
  } else if (options.smallest) {
    pad_x %= options.stride;
    pad_y %= options.stride;
  }
  box.pad_x = static_cast<double>(pad_x) / 2;
  box.pad_y = static_cast<double>(pad_y) / 2;
  // Subtracting 0.1 puts an odd pixel of padding on the right or at the bottom.
  box.left = round_even(box.pad_x - 0.1);
  box.top = round_even(box.pad_y - 0.1);
  box.width = box.resized_width + pad_x;
  box.height = box.resized_height + pad_y;
  return box;
}

PlacedPicture placed_picture(const Letterbox& geometry) {
  // Rounding may leave a very thin image no rows or columns: keep at least one.
  const int64_t height = std::max<int64_t>(geometry.resized_height, 1);
  const int64_t width = std::max<int64_t>(geometry.resized_width, 1);
  PlacedPicture picture;
  picture.size = {static_cast<int32_t>(height), static_cast<int32_t>(width)};
  picture.left =
      static_cast<int>(std::min(geometry.left, geometry.width - width));
  picture.top =
      static_cast<int>(std::min(geometry.top, geometry.height - height));
  picture.held = {0, height};
  return picture;
}

cv::Mat resize_to_letterbox(const cv::Mat& pixels, const Letterbox& geometry) {
  const codecs::ImageSize size = placed_picture(geometry).size;
  if (pixels.rows == size.height && pixels.cols == size.width) return pixels;
  cv::Mat resized(size.height, size.width, pixels.type());
  codecs::resize_bands(pixels, resized, cv::INTER_LINEAR);
  return resized;
}

PlacedTile placed_tile(const cv::Mat& pixels, const PlacedPicture& picture) {
  const cv::Point origin(picture.left,
                         picture.top + static_cast<int>(picture.held.begin));
  return {pixels, origin, {origin, pixels.size()}};
}

cv::Mat place_tiles(const std::vector<PlacedTile>& tiles, int width,
                    codecs::PixelRows rows, int type) {
  cv::Mat result = codecs::plain_picture(static_cast<int>(rows.size()), width,
                                         type, kernels::kFillGray);
  const cv::Point first(0, static_cast<int>(rows.begin));
  const cv::Rect all(first, result.size());
  for (const PlacedTile& tile : tiles) {
    const cv::Rect seen = tile.seen & all;
    if (seen.empty()) continue;
    tile.pixels(seen - tile.origin).copyTo(result(seen - first));
  }
  return result;
}

cv::Mat letterbox(const cv::Mat& pixels, const Letterbox& geometry) {
  return place_tiles({placed_tile(resize_to_letterbox(pixels, geometry),
                                  placed_picture(geometry))},
                     static_cast<int>(geometry.width), {0, geometry.height},
                     pixels.type());
}

}  // namespace headroom::augment
