// LoadedImage: a sample as augmentation receives it: decoded, resized to fit
// the network, with its labels.
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
  // RGB or bands, of 8 or 16 bits; may be shared with a cache: never written to
  cv::Mat pixels;
  codecs::ImageSize source;  // the size before resizing
  std::span<const labels::BoxLabel> labels;
  // Holds `labels` where they are not the data set's: cut, of a window.
  std::shared_ptr<const std::vector<labels::BoxLabel>> own_labels;
  labels::Outlines outlines;  // the labels'
  std::string fault;          // gray pixels, no labels, if not empty
};

// Safe to call from several threads.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // The type of every sample's pixels.
  virtual int type() const { return CV_8UC3; }
  // Are they red, green and blue of 8 bits, as colours' changes take them?
  virtual bool has_colours() const { return type() == CV_8UC3; }

  // The size of a whole sample once load() has resized it to fit the network.
  virtual codecs::ImageSize loaded_size(int64_t sample) const = 0;

  // `pixels` are the given rows of the sample, `fault` and `labels` are about
  // the whole of it: the same whatever the rows.
  virtual LoadedImage load(int64_t sample, codecs::PixelRows rows) = 0;
};

// A whole sample. Safe to call from several threads.
using LoadImage = std::function<LoadedImage(int64_t sample)>;

}  // namespace headroom::augment
