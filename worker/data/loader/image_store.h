// ImageStore: samples decoded and resized to fit the network, some of them
// remembered.
//
// A mosaic needs four images per sample, so each image is met four times an
// epoch. The first ones that fit into `cache_bytes` stay for good: under a
// random order evicting would gain nothing, and a full cache of half the data
// set saves half the decoding.
//
// A sample that needs no resizing has only the asked rows decoded, and these
// are not remembered: augmentation asks for others the next time, and ranks
// that share an image have no memory for the whole of it.
#pragma once

#include <cstdint>
#include <mutex>
#include <opencv2/core/mat.hpp>
#include <unordered_map>

#include "worker/data/augment/loaded_image.h"
#include "worker/data/labels/dataset.h"

namespace headroom::loader {

class ImageStore : public augment::ImageSource {
 public:
  struct Options {
    int64_t height = 0, width = 0;  // the network's input, to be fitted
    bool training = true;           // how images are made smaller
    int64_t cache_bytes = 0;        // 0: nothing is remembered
    codecs::ImageLimits limits;
  };
  ImageStore(const labels::Dataset& dataset, const Options& options);

  int type() const override { return options_.limits.type(); }
  codecs::ImageSize loaded_size(int64_t sample) const override;

  // An image that cannot be decoded, or has changed its size since it was
  // indexed, is gray, without labels, and has a fault naming its file.
  augment::LoadedImage load(int64_t sample, codecs::PixelRows rows) override;

  bool remembers(int64_t sample);

 private:
  struct Entry {
    cv::Mat pixels;
    codecs::PixelRows held;  // rows of the sample
    std::string fault;
  };
  Entry decode(int64_t sample, codecs::PixelRows rows) const;
  // Remembered or decoded; holds `rows` at least.
  Entry entry_with(int64_t sample, codecs::PixelRows rows);

  const labels::Dataset& dataset_;
  Options options_;
  std::mutex mutex_;
  std::unordered_map<int64_t, Entry> entries_;  // guarded by mutex_
  int64_t cached_bytes_ = 0;                    // guarded by mutex_
};

}  // namespace headroom::loader
