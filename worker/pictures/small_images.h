// SmallImages: a data set's samples as small as a picture of many of them needs
// them, whatever the size of their files.
//
// A large file is read from top to bottom and made smaller on the way, so that
// a scene costs a band of its rows (worker/data/row_reader.h says which formats
// cannot).
//
// Ownership: borrows the data set. Threads: load() from any number of threads.
#pragma once

#include <cstdint>

#include "worker/data/dataset.h"
#include "worker/data/loaded_image.h"

namespace headroom {

class SmallImages : public ImageSource {
 public:
  // They fit into height x width. Of files with `bands` other than colours the
  // first three are shown, or the first as gray (data/image_bands.h).
  SmallImages(const Dataset& dataset, int64_t height, int64_t width,
              int bands = kColours)
      : dataset_(dataset), height_(height), width_(width), bands_(bands) {}

  bool has_colours() const override { return bands_ == kColours; }
  ImageSize loaded_size(int64_t sample) const override;
  // A file that cannot be read is gray, without labels, and has a fault.
  LoadedImage load(int64_t sample, PixelRows rows) override;

 private:
  const Dataset& dataset_;
  const int64_t height_, width_;
  const int bands_;  // of the files
};

}  // namespace headroom
