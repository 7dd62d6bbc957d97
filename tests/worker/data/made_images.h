// MadeImages: an ImageSource over a function that makes whole samples.
#pragma once

#include <utility>

#include "worker/data/augment/loaded_image.h"

namespace headroom {

class MadeImages : public augment::ImageSource {
 public:
  explicit MadeImages(augment::LoadImage make, int type = CV_8UC3)
      : make_(std::move(make)), type_(type) {}

  int type() const override { return type_; }
  codecs::ImageSize loaded_size(int64_t sample) const override {
    const augment::LoadedImage image = make_(sample);
    return {image.pixels.rows, image.pixels.cols};
  }
  augment::LoadedImage load(int64_t sample, codecs::PixelRows rows) override {
    augment::LoadedImage image = make_(sample);
    rows = codecs::clamp_rows(rows, image.pixels.rows);
    rows_loaded_ += rows.size();
    image.pixels = image.pixels.rowRange(static_cast<int>(rows.begin),
                                         static_cast<int>(rows.end));
    return image;
  }

  int64_t rows_loaded() const { return rows_loaded_; }

 private:
  augment::LoadImage make_;
  const int type_;
  int64_t rows_loaded_ = 0;
};

}  // namespace headroom
