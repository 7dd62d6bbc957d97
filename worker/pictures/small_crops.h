// SmallCrops: random crops (worker/data/tiles/random_crop.h) as small as a
// picture of many samples needs them: the windows that training sees, shrunk.
//
// Ownership: borrows the data set and the small images.
// Threads: load() from any number of threads.
#pragma once

#include <cstdint>

#include "worker/data/loader/loader_options.h"
#include "worker/data/tiles/random_crop.h"

namespace headroom::pictures {

class SmallCrops : public augment::ImageSource {
 public:
  // A sample of the network's size becomes height x width; `whole` fits images
  // that are not cut into that.
  SmallCrops(const loader::LoaderOptions& options, augment::ImageSource& whole,
             const augment::SampleId& made, int64_t height, int64_t width);

  bool has_colours() const override { return whole_.has_colours(); }
  codecs::ImageSize loaded_size(int64_t sample) const override;
  // Rows of a window that take too much memory are gray, with a fault.
  augment::LoadedImage load(int64_t sample, codecs::PixelRows rows) override;

 private:
  tiles::RandomCrops crops_;
  augment::ImageSource& whole_;
  const double ratio_y_, ratio_x_;
};

}  // namespace headroom::pictures
