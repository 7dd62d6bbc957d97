#include "worker/data/box_counts.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "worker/data/parallel_for.h"

namespace headroom {
namespace {

constexpr int64_t kUnreadable = -1;

}  // namespace

std::optional<int64_t> count_boxes(const SplitImage& image,
                                   const ImageLimits& limits) {
  ImageSize size;
  if (image.reader->is_in_pixels()) {
    const ImageSizeResult header = read_image_size(image.path, limits);
    if (!header.ok()) return std::nullopt;
    size = header.size;
  }
  const ImageLabels labels = image.labels(size);
  if (labels.fault) return std::nullopt;
  return static_cast<int64_t>(labels.labels.boxes.size());
}

std::vector<int64_t> count_boxes(const DataConfig& config, Split split,
                                 const IndexOptions& options) {
  DataReport ignored;  // the run's own report has the same faults
  const SplitImages split_images =
      open_split(config, split, options.single_cls, ignored);
  const std::vector<SplitImage>& images = split_images.images;
  std::vector<int64_t> boxes(images.size());
  parallel_for(
      static_cast<int64_t>(images.size()), options.num_threads, [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        boxes[at] =
            count_boxes(images[at], options.limits).value_or(kUnreadable);
      });
  std::erase(boxes, kUnreadable);
  if (boxes.empty()) {
    throw Error("data",
                "no image to train on is named in " + config.file.string(),
                "name folders or lists of .jpg, .png, .bmp, .tif or .webp "
                "files",
                ExitCode::kData);
  }
  return boxes;
}

std::vector<int64_t> count_boxes(const IndexedDataset& indexed) {
  std::vector<int64_t> boxes;
  for (int64_t i = 0; i < indexed.dataset.size(); ++i) {
    boxes.push_back(static_cast<int64_t>(indexed.dataset.labels(i).size()));
  }
  boxes.insert(boxes.end(), indexed.undecodable_boxes.begin(),
               indexed.undecodable_boxes.end());
  return boxes;
}

}  // namespace headroom
