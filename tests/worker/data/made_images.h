// MadeImages: an ImageSource over a function that makes whole samples.
#pragma once

#include <utility>

#include "worker/data/loaded_image.h"

namespace headroom {

class MadeImages : public ImageSource {
 public:
  explicit MadeImages(LoadImage make) : make_(std::move(make)) {}

  ImageSize loaded_size(int64_t sample) const override {
    const LoadedImage image = make_(sample);
    return {image.pixels.rows, image.pixels.cols};
  }
  LoadedImage load(int64_t sample, PixelRows rows) override {
    LoadedImage image = make_(sample);
    rows = clamp_rows(rows, image.pixels.rows);
    rows_loaded_ += rows.size();
    image.pixels = image.pixels.rowRange(static_cast<int>(rows.begin),
                                         static_cast<int>(rows.end));
    return image;
  }

  int64_t rows_loaded() const { return rows_loaded_; }

 private:
  LoadImage make_;
  int64_t rows_loaded_ = 0;
};

}  // namespace headroom
