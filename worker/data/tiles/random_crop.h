// RandomCrops: samples as windows of their images. Where an image is larger
// than the network's input, what is seen of it is a window of that size (or as
// large as the image's side) at a random place, its pixels as they are; smaller
// images are what they are without windows.
//
//   +-----------------------+
//   |      +-------+        |   Every place is as likely. A box is clipped to
//   |      |window |        |   the window, and stays where at least
//   |      +-------+        |   kLeastVisible of its area is seen
//   +-----------------------+   (tile_plan.h).
//
// The place follows from (seed, epoch, the sample that is made, the sample
// whose image it is): each part of a mosaic has its own, the same for any
// number of threads and ranks, and after a resume. (An image that is twice in
// one mosaic shows the same window twice.) Only the window's rows of the file
// are kept, and nothing is cached.
#pragma once

#include <cstdint>

#include "worker/data/augment/augment.h"
#include "worker/data/augment/loaded_image.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/tiles/tile_plan.h"

namespace headroom::tiles {

inline constexpr double kLeastVisible = 0.3;  // headroom tile's default

// The size of the window of an image; the image's where it is not cut.
codecs::ImageSize crop_size(codecs::ImageSize image, int64_t height,
                            int64_t width);

class RandomCrops : public augment::ImageSource {
 public:
  // Crops the samples that make up `made`; `whole` loads images that are not
  // cut. height x width is the network's input.
  // Windows whose rows have more pixels than the limit are faults.
  RandomCrops(const labels::Dataset& dataset, augment::ImageSource& whole,
              const augment::SampleId& made, int64_t height, int64_t width,
              const codecs::ImageLimits& limits = {});

  int type() const override { return limits_.type(); }
  codecs::ImageSize loaded_size(int64_t sample) const override;
  augment::LoadedImage load(int64_t sample, codecs::PixelRows rows) override;

  // REQUIRES: the sample's image is larger.
  TileRect window_of(int64_t sample) const;

  // Is the sample's image larger?
  bool is_cut(int64_t sample) const;

 private:
  const labels::Dataset& dataset_;
  augment::ImageSource& whole_;
  const augment::SampleId made_;
  const int64_t height_, width_;
  const codecs::ImageLimits limits_;
};

}  // namespace headroom::tiles
