// SmallImages: a data set's samples as small as a picture of many of them needs
// them, whatever the size of their files.
//
// A large file is read from top to bottom and made smaller on the way, so that
// a scene costs a band of its rows (worker/data/codecs/scanline_reader.h says
// which formats cannot).
#pragma once

#include <cstdint>

#include "worker/data/augment/loaded_image.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/loader/loader_options.h"
#include "worker/data/tiles/random_crop.h"

namespace headroom::pictures {

class SmallImages : public augment::ImageSource {
 public:
  // Samples fit into height x width. Files with other `bands` than colours show
  // the first three, or the first as gray (codecs/image_bands.h).
  SmallImages(const labels::Dataset& dataset, int64_t height, int64_t width,
              int bands = codecs::kColours)
      : dataset_(dataset), height_(height), width_(width), bands_(bands) {}

  bool has_colours() const override { return bands_ == codecs::kColours; }
  codecs::ImageSize loaded_size(int64_t sample) const override;
  // A file that cannot be read is gray, without labels, and has a fault.
  augment::LoadedImage load(int64_t sample, codecs::PixelRows rows) override;

 private:
  const labels::Dataset& dataset_;
  const int64_t height_, width_;
  const int bands_;  // of the files
};

// SmallCrops: random crops (worker/data/tiles/random_crop.h) as small as a
// picture of many samples needs them: the windows that training sees, shrunk.
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
