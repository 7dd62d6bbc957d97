#include "worker/data/loader/image_store.h"

#include <string>

#include "parallel/base/text.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/codecs/image_bands.h"

namespace headroom::loader {

ImageStore::ImageStore(const labels::Dataset& dataset, const Options& options)
    : dataset_(dataset), options_(options) {}

codecs::ImageSize ImageStore::loaded_size(int64_t sample) const {
  return augment::fit_size(dataset_.image_size(sample), options_.height,
                           options_.width);
}

ImageStore::Entry ImageStore::decode(int64_t sample,
                                     codecs::PixelRows rows) const {
  const codecs::ImageSize indexed = dataset_.image_size(sample);
  const codecs::ImageSize size = loaded_size(sample);
  Entry entry;
  entry.held = size == indexed ? rows : codecs::PixelRows{0, size.height};
  codecs::ImageResult decoded = codecs::decode_rows(
      dataset_.path(sample), size == indexed ? rows : codecs::kAllRows,
      options_.limits);
  const codecs::ImageSize found = decoded.size;
  if (decoded.ok() && found != indexed) {
    decoded.reason =
        cat(found.width, " x ", found.height, " pixels, but ", indexed.width,
            " x ", indexed.height, " when the data set was indexed");
  }
  if (!decoded.ok()) {
    entry.fault = dataset_.path(sample).string() + ": " + decoded.reason;
    entry.pixels =
        codecs::plain_picture(static_cast<int>(entry.held.size()), size.width,
                              type(), kernels::kFillGray);
  } else if (size == indexed) {
    entry.pixels = decoded.pixels;
  } else {
    entry.pixels =
        augment::resize_loaded(decoded.pixels, size, options_.training);
  }
  return entry;
}

ImageStore::Entry ImageStore::entry_with(int64_t sample,
                                         codecs::PixelRows rows) {
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(sample);
    if (at != entries_.end()) return at->second;
  }
  const Entry entry = decode(sample, rows);
  if (entry.held != codecs::PixelRows{0, loaded_size(sample).height})
    return entry;
  const auto bytes =
      static_cast<int64_t>(entry.pixels.total() * entry.pixels.elemSize());
  const std::lock_guard lock(mutex_);
  if (cached_bytes_ + bytes <= options_.cache_bytes &&
      entries_.emplace(sample, entry).second) {
    cached_bytes_ += bytes;
  }
  return entry;
}

bool ImageStore::remembers(int64_t sample) {
  const std::lock_guard lock(mutex_);
  return entries_.contains(sample);
}

augment::LoadedImage ImageStore::load(int64_t sample, codecs::PixelRows rows) {
  rows = codecs::clamp_rows(rows, loaded_size(sample).height);
  const Entry entry = entry_with(sample, rows);
  augment::LoadedImage image;
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

}  // namespace headroom::loader
