// RandomCrops: replaces large images by windows of them. If an image is larger
// than the network's input, the sample shows a window at a random place,
// without scaling. The window has the input's size; along a side where the
// image is smaller, it has the image's length. Smaller images are loaded as
// without windows.
//
//   +-----------------------+
//   |      +-------+        |   All places are equally likely. A box is clipped
//   |      |window |        |   to the window, and is kept if at least
//   |      +-------+        |   kLeastVisible of its area is in the window
//   +-----------------------+   (tile_plan.h).
//
// The place depends only on the seed, the epoch, the sample that is made and
// the sample that the image belongs to. So each part of a mosaic has its own
// window, which does not depend on the number of threads and ranks and is the
// same after a resume. (An image that occurs twice in one mosaic shows the same
// window twice.) Only the window's rows of the file are kept in memory, and
// nothing is cached.
#pragma once

#include <cstdint>

#include "worker/data/augment/augment.h"
#include "worker/data/augment/loaded_image.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/tiles/tile_plan.h"

namespace headroom::tiles {

inline constexpr double kLeastVisible = 0.3;  // default of `headroom tile`

// The size of an image's window; the image's own size if it is not cut.
codecs::ImageSize crop_size(codecs::ImageSize image, int64_t height,
                            int64_t width);

class RandomCrops : public augment::ImageSource {
 public:
  // Crops the images that sample `made` consists of; `whole` loads the images
  // that are not cut. height x width is the network's input. A window whose
  // rows have more pixels than the limit is a fault.
  RandomCrops(const labels::Dataset& dataset, augment::ImageSource& whole,
              const augment::SampleId& made, int64_t height, int64_t width,
              const codecs::ImageLimits& limits = {});

  int type() const override { return limits_.type(); }
  codecs::ImageSize loaded_size(int64_t sample) const override;
  augment::LoadedImage load(int64_t sample, codecs::PixelRows rows) override;

  // REQUIRES: is_cut(sample).
  TileRect window_of(int64_t sample) const;

  // Whether the sample's image is larger than the network's input.
  bool is_cut(int64_t sample) const;

 private:
  const labels::Dataset& dataset_;
  augment::ImageSource& whole_;
  const augment::SampleId made_;
  const int64_t height_, width_;
  const codecs::ImageLimits limits_;
};

}  // namespace headroom::tiles
