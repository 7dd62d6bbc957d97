#include "worker/data/random_crop.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/data/image_bands.h"
#include "worker/data/letterbox.h"
#include "worker/data/random.h"
#include "worker/data/tile_cutter.h"
#include "worker/data/tile_plan.h"

namespace headroom {

ImageSize crop_size(ImageSize image, int64_t height, int64_t width) {
  return {static_cast<int32_t>(std::min<int64_t>(image.height, height)),
          static_cast<int32_t>(std::min<int64_t>(image.width, width))};
}

RandomCrops::RandomCrops(const Dataset& dataset, ImageSource& whole,
                         const SampleId& made, int64_t height, int64_t width,
                         const ImageLimits& limits)
    : dataset_(dataset),
      whole_(whole),
      made_(made),
      height_(height),
      width_(width),
      limits_(limits) {}

bool RandomCrops::is_cut(int64_t sample) const {
  const ImageSize size = dataset_.image_size(sample);
  return crop_size(size, height_, width_) != size;
}

ImageSize RandomCrops::loaded_size(int64_t sample) const {
  return is_cut(sample)
             ? crop_size(dataset_.image_size(sample), height_, width_)
             : whole_.loaded_size(sample);
}

TileRect RandomCrops::window_of(int64_t sample) const {
  const auto epoch = static_cast<uint64_t>(made_.epoch);
  // Two numbers make one stream: the first one's bits are the second's seed.
  RandomStream of_made(made_.seed, epoch, made_.stream(),
                       RandomPurpose::kRandomCrop);
  RandomStream draws(of_made.bits(), epoch, static_cast<uint64_t>(sample),
                     RandomPurpose::kRandomCrop);
  const ImageSize image = dataset_.image_size(sample);
  const ImageSize size = crop_size(image, height_, width_);
  TileRect window;
  window.height = size.height;
  window.width = size.width;
  window.y = draws.below(image.height - size.height + 1);
  window.x = draws.below(image.width - size.width + 1);
  return window;
}

LoadedImage RandomCrops::load(int64_t sample, PixelRows rows) {
  if (!is_cut(sample)) return whole_.load(sample, rows);
  const TileRect window = window_of(sample);
  rows = clamp_rows(rows, window.height);
  LoadedImage image;
  image.source = dataset_.image_size(sample);
  // All of its rows: a rank that wants some must meet the damage of all.
  ImageResult cut = cut_window(dataset_.path(sample), window, limits_);
  if (cut.ok() && cut.size != image.source) {
    cut.reason = "another size than when the data set was indexed";
  }
  if (!cut.ok()) {
    image.fault = dataset_.path(sample).string() + ": " + cut.reason;
    cut.pixels =
        plain_picture(static_cast<int>(window.height),
                      static_cast<int>(window.width), bands(), kFillGray);
  } else {
    image.own_labels = std::make_shared<const std::vector<BoxLabel>>(
        boxes_in(window, image.source, dataset_.labels(sample), kLeastVisible));
    image.labels = *image.own_labels;
  }
  image.pixels = cut.pixels.rowRange(static_cast<int>(rows.begin),
                                     static_cast<int>(rows.end));
  return image;
}

}  // namespace headroom
