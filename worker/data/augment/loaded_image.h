// LoadedImage: the image of a sample as augmentation receives it: decoded,
// resized to fit the network, and with its labels.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <opencv2/core/mat.hpp>
#include <span>
#include <string>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/data/labels/label_file.h"

namespace headroom::augment {

struct LoadedImage {
  // RGB or bands, of 8 or 16 bits. Must not be written, because a cache may
  // share them.
  cv::Mat pixels;
  codecs::ImageSize source;  // size before resizing
  std::span<const labels::BoxLabel> labels;
  // Owns the memory of `labels` if it is not the data set's (for cropped
  // images).
  std::shared_ptr<const std::vector<labels::BoxLabel>> own_labels;
  labels::Outlines outlines;  // outlines of the labels
  std::string fault;  // if not empty, pixels are gray and there are no labels
};

// Loads the images of samples. Safe to call from several threads.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // The type of all samples' pixels.
  virtual int type() const { return CV_8UC3; }
  // Whether pixels are 8-bit red, green and blue, which steps that change
  // colours need.
  virtual bool has_colours() const { return type() == CV_8UC3; }

  // The size of the whole sample after load() has resized it.
  virtual codecs::ImageSize loaded_size(int64_t sample) const = 0;

  // `pixels` are the given rows of the sample. `fault` and `labels` concern the
  // whole sample and do not depend on the rows.
  virtual LoadedImage load(int64_t sample, codecs::PixelRows rows) = 0;
};

// Loads a whole sample. Safe to call from several threads.
using LoadImage = std::function<LoadedImage(int64_t sample)>;

}  // namespace headroom::augment
