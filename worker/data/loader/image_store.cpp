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

std::optional<ImageStore::Entry> ImageStore::cached(int64_t sample) {
  if (options_.shared != nullptr) {
    const uint8_t* const pixels = options_.shared->find(sample);
    if (pixels == nullptr) return std::nullopt;
    const codecs::ImageSize size = loaded_size(sample);
    // A cv::Mat has no type for pixels that must not be written.
    return Entry{
        cv::Mat(static_cast<int>(size.height), static_cast<int>(size.width),
                type(), const_cast<uint8_t*>(pixels)),
        {0, size.height},
        ""};
  }
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(sample);
  return at == entries_.end() ? std::nullopt : std::optional(at->second);
}

void ImageStore::cache(int64_t sample, const Entry& entry) {
  const size_t bytes = entry.pixels.total() * entry.pixels.elemSize();
  if (options_.shared != nullptr) {
    if (entry.fault.empty() && entry.pixels.isContinuous()) {
      options_.shared->add(sample, {entry.pixels.data, bytes});
    }
    return;
  }
  const auto taken = static_cast<int64_t>(bytes);
  const std::lock_guard lock(mutex_);
  if (cached_bytes_ + taken <= options_.cache_bytes &&
      entries_.emplace(sample, entry).second) {
    cached_bytes_ += taken;
  }
}

ImageStore::Entry ImageStore::entry_with(int64_t sample,
                                         codecs::PixelRows rows) {
  if (std::optional<Entry> known = cached(sample)) return std::move(*known);
  Entry entry = decode(sample, rows);
  if (entry.held == codecs::PixelRows{0, loaded_size(sample).height}) {
    cache(sample, entry);
  }
  return entry;
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
