#include "worker/data/image_store.h"

#include <string>

#include "worker/data/image_bands.h"
#include "worker/data/letterbox.h"

namespace headroom {

ImageStore::ImageStore(const Dataset& dataset, const Options& options)
    : dataset_(dataset), options_(options) {}

ImageSize ImageStore::loaded_size(int64_t sample) const {
  return fit_size(dataset_.image_size(sample), options_.height, options_.width);
}

ImageStore::Entry ImageStore::decode(int64_t sample, PixelRows rows) const {
  const ImageSize indexed = dataset_.image_size(sample);
  const ImageSize size = loaded_size(sample);
  Entry entry;
  entry.held = size == indexed ? rows : PixelRows{0, size.height};
  ImageResult decoded =
      decode_rows(dataset_.path(sample), size == indexed ? rows : kAllRows,
                  options_.limits);
  const ImageSize found = decoded.size;
  if (decoded.ok() && found != indexed) {
    decoded.reason =
        std::to_string(found.width) + " x " + std::to_string(found.height) +
        " pixels, but " + std::to_string(indexed.width) + " x " +
        std::to_string(indexed.height) + " when the data set was indexed";
  }
  if (!decoded.ok()) {
    entry.fault = dataset_.path(sample).string() + ": " + decoded.reason;
    entry.pixels = plain_picture(static_cast<int>(entry.held.size()),
                                 size.width, bands(), kFillGray);
  } else if (size == indexed) {
    entry.pixels = decoded.pixels;
  } else {
    entry.pixels = resize_loaded(decoded.pixels, size, options_.training);
  }
  return entry;
}

ImageStore::Entry ImageStore::entry_with(int64_t sample, PixelRows rows) {
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(sample);
    if (at != entries_.end()) return at->second;
  }
  const Entry entry = decode(sample, rows);
  if (entry.held != PixelRows{0, loaded_size(sample).height}) return entry;
  const auto bytes = static_cast<int64_t>(entry.pixels.total()) * bands();
  const std::lock_guard lock(mutex_);
  if (cached_bytes_ + bytes <= options_.cache_bytes &&
      entries_.emplace(sample, entry).second) {
    cached_bytes_ += bytes;
  }
  return entry;
}

LoadedImage ImageStore::load(int64_t sample, PixelRows rows) {
  rows = clamp_rows(rows, loaded_size(sample).height);
  const Entry entry = entry_with(sample, rows);
  LoadedImage image;
  image.pixels =
      entry.pixels.rowRange(static_cast<int>(rows.begin - entry.held.begin),
                            static_cast<int>(rows.end - entry.held.begin));
  image.source = dataset_.image_size(sample);
  image.fault = entry.fault;
  if (entry.fault.empty()) {
    image.labels = dataset_.labels(sample);
    image.outlines = dataset_.outlines(sample);
  }
  return image;
}

}  // namespace headroom
