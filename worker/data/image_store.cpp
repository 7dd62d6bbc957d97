#include "worker/data/image_store.h"

#include <string>

#include "worker/data/letterbox.h"

namespace headroom {

ImageStore::ImageStore(const Dataset& dataset, const Options& options)
    : dataset_(dataset), options_(options) {}

ImageStore::Entry ImageStore::decode(int64_t sample) const {
  const ImageSize indexed = dataset_.image_size(sample);
  const ImageSize size = fit_size(indexed, options_.height, options_.width);
  ImageResult decoded = decode_image(dataset_.path(sample), options_.limits);
  const ImageSize found{decoded.pixels.rows, decoded.pixels.cols};
  if (decoded.ok() && found != indexed) {
    decoded.reason =
        std::to_string(found.width) + " x " + std::to_string(found.height) +
        " pixels, but " + std::to_string(indexed.width) + " x " +
        std::to_string(indexed.height) + " when the data set was indexed";
  }
  Entry entry;
  if (decoded.ok()) {
    entry.pixels = resize_loaded(decoded.pixels, size, options_.training);
  } else {
    entry.fault = dataset_.path(sample).string() + ": " + decoded.reason;
    entry.pixels =
        cv::Mat(size.height, size.width, CV_8UC3, cv::Scalar::all(kFillGray));
  }
  return entry;
}

LoadedImage ImageStore::load(int64_t sample) {
  Entry entry;
  bool found = false;
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(sample);
    found = at != entries_.end();
    if (found) entry = at->second;
  }
  if (!found) {
    entry = decode(sample);
    const auto bytes = static_cast<int64_t>(entry.pixels.total() * 3);
    const std::lock_guard lock(mutex_);
    if (cached_bytes_ + bytes <= options_.cache_bytes &&
        entries_.emplace(sample, entry).second) {
      cached_bytes_ += bytes;
    }
  }
  LoadedImage image;
  image.pixels = entry.pixels;
  image.source = dataset_.image_size(sample);
  image.fault = entry.fault;
  if (entry.fault.empty()) image.labels = dataset_.labels(sample);
  return image;
}

}  // namespace headroom
