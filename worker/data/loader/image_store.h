// ImageStore: decodes samples, resizes them to fit the network, and caches some
// of them.
//
// A mosaic needs four images, so each image is used about four times an epoch.
// The first images that fit into `cache_bytes` stay in the cache for ever.
// Samples come in random order, so replacing cached images would save nothing.
// A full cache of half the data set saves half of the decoding.
//
// If a sample needs no resizing, only the requested rows are decoded, and they
// are not cached: augmentation will need other rows the next time, and ranks
// that share an image have no memory for the whole image.
//
// The cache belongs to this process, or to the processes of this machine
// (shared_images.h). It changes no pixel, whichever process has filled it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <opencv2/core/mat.hpp>
#include <optional>
#include <unordered_map>

#include "worker/data/augment/loaded_image.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/loader/shared_images.h"

namespace headroom::loader {

class ImageStore : public augment::ImageSource {
 public:
  struct Options {
    int64_t height = 0, width = 0;  // the network's input size
    bool training = true;           // whether images are shrunk as for training
    int64_t cache_bytes = 0;  // 0 for no cache; a larger one saves decoding
    // Used in place of an own cache if it is not nullptr. Images that cannot be
    // decoded are not cached then.
    std::shared_ptr<SharedImages> shared;
    codecs::ImageLimits limits;
  };
  ImageStore(const labels::Dataset& dataset, const Options& options);

  int type() const override { return options_.limits.type(); }
  codecs::ImageSize loaded_size(int64_t sample) const override;

  // If an image cannot be decoded, or its size has changed since it was
  // indexed, the result is gray, without labels, with a fault naming the file.
  augment::LoadedImage load(int64_t sample, codecs::PixelRows rows) override;

  bool remembers(int64_t sample) { return cached(sample).has_value(); }

 private:
  struct Entry {
    cv::Mat pixels;
    codecs::PixelRows held;  // range of rows of the sample
    std::string fault;
  };
  Entry decode(int64_t sample, codecs::PixelRows rows) const;
  std::optional<Entry> cached(int64_t sample);
  void cache(int64_t sample, const Entry& entry);
  // Returns the sample from the cache or decodes it. The entry has at least the
  // rows `rows`.
  Entry entry_with(int64_t sample, codecs::PixelRows rows);

  const labels::Dataset& dataset_;
  Options options_;
  std::mutex mutex_;
  std::unordered_map<int64_t, Entry> entries_;  // guarded by mutex_
  int64_t cached_bytes_ = 0;                    // guarded by mutex_
};

}  // namespace headroom::loader
