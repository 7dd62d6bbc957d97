#include "worker/data/labels/box_counts.h"

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/parallel_for.h"

namespace headroom::labels {

std::optional<ImageBoxes> count_boxes(const SplitImage& image,
                                      const codecs::ImageLimits& limits) {
  codecs::ImageSize size;
  if (image.reader->is_in_pixels()) {
    const codecs::ImageSizeResult header =
        codecs::read_image_size(image.path, limits);
    if (!header.ok()) return std::nullopt;
    size = header.size;
  }
  const ImageLabels labels = image.labels(size);
  if (labels.fault) return std::nullopt;
  return ImageBoxes{static_cast<int64_t>(labels.labels.boxes.size()),
                    labels.labels.num_polygons};
}

BoxCounts count_boxes(const configs::DataConfig& config, Split split,
                      const IndexOptions& options) {
  DataReport ignored;  // the run's own report has the same faults
  const SplitImages split_images =
      open_split(config, split, options.single_cls, ignored);
  const std::vector<SplitImage>& images = split_images.images;
  std::vector<std::optional<ImageBoxes>> counts(images.size());
  parallel_for(static_cast<int64_t>(images.size()), options.num_threads,
               [&](int64_t i) {
                 const auto at = static_cast<size_t>(i);
                 counts[at] = count_boxes(images[at], options.limits);
               });
  BoxCounts result;
  for (const auto& image : counts) {
    if (!image) continue;
    result.boxes.push_back(image->boxes);
    result.polygons += image->polygons;
  }
  if (result.boxes.empty()) {
    throw Error("data",
                "no image to train on is named in " + config.file.string(),
                "name folders or lists of .jpg, .png, .bmp, .tif or .webp "
                "files",
                ExitCode::kData);
  }
  return result;
}

BoxCounts count_boxes(const IndexedDataset& indexed) {
  BoxCounts result;
  for (int64_t i = 0; i < indexed.dataset.size(); ++i) {
    result.boxes.push_back(
        static_cast<int64_t>(indexed.dataset.labels(i).size()));
  }
  result.polygons = indexed.dataset.num_polygons();
  for (const ImageBoxes& image : indexed.undecodable) {
    result.boxes.push_back(image.boxes);
    result.polygons += image.polygons;
  }
  return result;
}

}  // namespace headroom::labels
