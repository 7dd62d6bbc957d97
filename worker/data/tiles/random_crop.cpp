#include "worker/data/tiles/random_crop.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "worker/data/augment/letterbox.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/sampling/random.h"
#include "worker/data/tiles/tile_cutter.h"
#include "worker/data/tiles/tile_plan.h"

namespace headroom::tiles {

codecs::ImageSize crop_size(codecs::ImageSize image, int64_t height,
                            int64_t width) {
  return {static_cast<int32_t>(std::min<int64_t>(image.height, height)),
          static_cast<int32_t>(std::min<int64_t>(image.width, width))};
}

RandomCrops::RandomCrops(const labels::Dataset& dataset,
                         augment::ImageSource& whole,
                         const augment::SampleId& made, int64_t height,
                         int64_t width, const codecs::ImageLimits& limits)
    : dataset_(dataset),
      whole_(whole),
      made_(made),
      height_(height),
      width_(width),
      limits_(limits) {}

bool RandomCrops::is_cut(int64_t sample) const {
  const codecs::ImageSize size = dataset_.image_size(sample);
  return crop_size(size, height_, width_) != size;
}

codecs::ImageSize RandomCrops::loaded_size(int64_t sample) const {
  return is_cut(sample)
             ? crop_size(dataset_.image_size(sample), height_, width_)
             : whole_.loaded_size(sample);
}

TileRect RandomCrops::window_of(int64_t sample) const {
  const auto epoch = static_cast<uint64_t>(made_.epoch);
  // Make a stream of random numbers that depends on both samples: the stream of
  // the made sample gives the seed of the stream for the image.
  sampling::RandomStream of_made(made_.seed, epoch, made_.stream(),
                                 sampling::RandomPurpose::kRandomCrop);
  sampling::RandomStream draws(of_made.bits(), epoch,
                               static_cast<uint64_t>(sample),
                               sampling::RandomPurpose::kRandomCrop);
  const codecs::ImageSize image = dataset_.image_size(sample);
  const codecs::ImageSize size = crop_size(image, height_, width_);
  TileRect window;
  window.height = size.height;
  window.width = size.width;
  window.y = draws.below(image.height - size.height + 1);
  window.x = draws.below(image.width - size.width + 1);
  return window;
}

augment::LoadedImage RandomCrops::load(int64_t sample, codecs::PixelRows rows) {
  if (!is_cut(sample)) return whole_.load(sample, rows);
  const TileRect window = window_of(sample);
  rows = codecs::clamp_rows(rows, window.height);
  augment::LoadedImage image;
  image.source = dataset_.image_size(sample);
  // Reads all rows of the window even if only some are wanted: ranks that share
  // an image must agree on whether it is damaged.
  codecs::ImageResult cut = cut_window(dataset_.path(sample), window, limits_);
  if (cut.ok() && cut.size != image.source) {
    cut.reason = "another size than when the data set was indexed";
  }
  if (!cut.ok()) {
    image.fault = dataset_.path(sample).string() + ": " + cut.reason;
    cut.pixels = codecs::plain_picture(static_cast<int>(window.height),
                                       static_cast<int>(window.width), type(),
                                       kernels::kFillGray);
  } else {
    image.own_labels = std::make_shared<const std::vector<labels::BoxLabel>>(
        boxes_in(window, image.source, dataset_.labels(sample), kLeastVisible));
    image.labels = *image.own_labels;
  }
  image.pixels = cut.pixels.rowRange(static_cast<int>(rows.begin),
                                     static_cast<int>(rows.end));
  return image;
}

}  // namespace headroom::tiles
