#include "worker/pictures/small_images.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>
#include <string>
#include <utility>

#include "worker/data/augment/letterbox.h"
#include "worker/data/codecs/exif.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::pictures {
namespace {

// Up to here a file is decoded whole: that takes 12 MiB.
constexpr int64_t kMostDecoded = 3 << 22;  // bytes

cv::Mat to_rgb(const cv::Mat& rows) {
  const cv::Mat colours = codecs::shown_colours(rows);
  if (colours.depth() == CV_8U) return colours;
  cv::Mat bytes;
  colours.convertTo(bytes, CV_8U, 1.0 / 257);
  return bytes;
}

// Each row of the result is the mean of the file's rows that it covers.
cv::Mat shrink(codecs::ScanlineReader& reader, codecs::ImageSize size) {
  const codecs::ImageHeader& header = reader.header();
  const auto first_of = [&](int row) {
    return header.height * row / size.height;
  };
  cv::Mat result(size.height, size.width, CV_8UC3);
  for (int row = 0; row < size.height; ++row) {
    const int64_t count = first_of(row + 1) - first_of(row);
    cv::Mat band(static_cast<int>(count), static_cast<int>(header.width),
                 reader.type());
    reader.read(band);
    cv::Mat target = result.row(row);
    cv::resize(to_rgb(band), target, target.size(), 0, 0, cv::INTER_AREA);
  }
  reader.finish();
  return result;
}

struct SmallImage {
  cv::Mat pixels;
  std::string reason;  // why there are none
};

SmallImage read_small(const std::filesystem::path& file,
                      codecs::ImageSize source, codecs::ImageSize wanted,
                      int bands) {
  SmallImage image;
  codecs::ImageLimits limits;
  limits.bands = bands;
  const int64_t bytes = int64_t{source.height} * source.width * bands;
  const bool is_smaller =
      wanted.height <= source.height && wanted.width <= source.width;
  if (bytes <= kMostDecoded || !is_smaller) {
    const codecs::ImageResult decoded = codecs::decode_image(file, limits);
    image.reason = decoded.reason;
    if (decoded.ok()) {
      image.pixels = augment::resize_loaded(
          codecs::shown_colours(decoded.pixels), wanted, false);
    }
    return image;
  }
  image.reason = codecs::read_image_rows(
      file, limits, [&](codecs::ScanlineReader& reader) {
        const int orientation = reader.header().orientation;
        codecs::ImageSize stored = wanted;
        if (codecs::swaps_axes(orientation))
          std::swap(stored.height, stored.width);
        image.pixels = codecs::upright(shrink(reader, stored), orientation);
      });
  if (!image.reason.empty()) image.pixels.release();
  return image;
}

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

codecs::ImageSize SmallImages::loaded_size(int64_t sample) const {
  return augment::fit_size(dataset_.image_size(sample), height_, width_);
}

augment::LoadedImage SmallImages::load(int64_t sample, codecs::PixelRows rows) {
  const codecs::ImageSize size = loaded_size(sample);
  const std::filesystem::path file = dataset_.path(sample);
  SmallImage small =
      read_small(file, dataset_.image_size(sample), size, bands_);
  if (small.reason.empty() &&
      (small.pixels.rows != size.height || small.pixels.cols != size.width)) {
    small.reason = "another size than when the data set was indexed";
  }
  augment::LoadedImage image;
  image.source = dataset_.image_size(sample);
  if (small.reason.empty()) {
    image.labels = dataset_.labels(sample);
  } else {
    image.fault = file.string() + ": " + small.reason;
    small.pixels = cv::Mat(size.height, size.width, CV_8UC3,
                           cv::Scalar::all(kernels::kFillGray));
  }
  rows = codecs::clamp_rows(rows, size.height);
  image.pixels = small.pixels.rowRange(static_cast<int>(rows.begin),
                                       static_cast<int>(rows.end));
  return image;
}

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
