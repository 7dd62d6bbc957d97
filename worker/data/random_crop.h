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
// one mosaic shows the same window twice.) Of the file only the window's rows
// are kept, and nothing is remembered.
//
// Ownership: borrows the data set and the source of what is not cut.
// Threads: load() from any number of threads, if `whole` allows it.
#pragma once

#include <cstdint>

#include "worker/data/augment.h"
#include "worker/data/dataset.h"
#include "worker/data/loaded_image.h"
#include "worker/data/tile_grid.h"

namespace headroom {

inline constexpr double kLeastVisible = 0.3;  // as headroom tile's default

// The size of the window of an image; the image's where it is not cut.
ImageSize crop_size(ImageSize image, int64_t height, int64_t width);

class RandomCrops : public ImageSource {
 public:
  // Of the samples that make up `made`; height x width is the network's input.
  // Windows whose rows have more pixels than the limit are faults.
  RandomCrops(const Dataset& dataset, ImageSource& whole, const SampleId& made,
              int64_t height, int64_t width, const ImageLimits& limits = {});

  int bands() const override { return limits_.bands; }
  ImageSize loaded_size(int64_t sample) const override;
  LoadedImage load(int64_t sample, PixelRows rows) override;

  // REQUIRES: the sample's image is larger.
  TileRect window_of(int64_t sample) const;

  // Is the sample's image larger?
  bool is_cut(int64_t sample) const;

 private:
  const Dataset& dataset_;
  ImageSource& whole_;
  const SampleId made_;
  const int64_t height_, width_;
  const ImageLimits limits_;
};

}  // namespace headroom
