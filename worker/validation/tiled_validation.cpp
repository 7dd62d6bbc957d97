#include "worker/validation/tiled_validation.h"

#include <chrono>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/collectives/communicator.h"
#include "worker/data/codecs/image.h"
#include "worker/metrics/detection.h"
#include "worker/validation/validation_figures.h"

namespace headroom::validation {
namespace {

void check_memory(const labels::Dataset& dataset,
                  const codecs::ImageLimits& limits, int64_t limit) {
  for (int64_t i = 0; limit > 0 && i < dataset.size(); ++i) {
    const codecs::ImageSize size = dataset.image_size(i);
    const int64_t bytes =
        int64_t{CV_ELEM_SIZE(limits.type())} * size.height * size.width;
    if (bytes <= limit) continue;
    throw Error("val",
                dataset.path(i).string() + " is " + format_bytes(bytes) +
                    " decoded, but --host-memory-limit is " +
                    format_bytes(limit),
                cat("use --host-memory-limit ", bytes,
                    "B"
                    " or more, or cut the images first: headroom tile"),
                ExitCode::kNoPlan);
  }
}

std::vector<metrics::LabelledBox> labels_of_image(
    const labels::Dataset& dataset, int64_t sample) {
  const codecs::ImageSize size = dataset.image_size(sample);
  std::vector<metrics::LabelledBox> boxes;
  for (const labels::BoxLabel& label : dataset.labels(sample)) {
    boxes.push_back({metrics::label_corners(label.cx, label.cy, label.w,
                                            label.h, size.height, size.width),
                     label.class_index});
  }
  return boxes;
}

// Examines one image. An image that can no longer be decoded counts as one
// without boxes.
BatchFindings examine(detect::Detector& detector,
                      const labels::Dataset& dataset, int64_t sample,
                      const codecs::ImageLimits& limits,
                      const ValidationOptions& options) {
  BatchFindings findings;
  const codecs::ImageResult image =
      codecs::decode_image(dataset.path(sample), limits);
  ImageFindings found;
  found.sample = sample;
  if (!image.ok()) {
    findings.faults.push_back(dataset.path(sample).string() + ": " +
                              image.reason);
  } else if (image.size != dataset.image_size(sample)) {
    findings.faults.push_back(dataset.path(sample).string() +
                              ": of another size than when the data set was "
                              "indexed");
  } else {
    found.detections = detector.detect(image.pixels);
    found.labels = labels_of_image(dataset, sample);
  }
  add_image(std::move(found), options, findings);
  return findings;
}

detect::DetectorOptions detector_options(const TiledValidation& request,
                                         const ValidationOptions& options,
                                         bool has_anchors) {
  detect::DetectorOptions detector;
  detector.height = request.image_height;
  detector.width = request.image_width;
  detector.nms.confidence_threshold = options.confidence_threshold;
  detector.nms.iou_threshold = nms_iou_threshold(options, has_anchors);
  detector.nms.max_detections = options.max_detections;
  detector.tiles = request.tiles;
  return detector;
}

}  // namespace

ValidationResult validate_in_tiles(model::LayerGraph& model,
                                   const labels::Dataset& dataset,
                                   const TiledValidation& request,
                                   collectives::Communicator& world,
                                   const ValidationOptions& options) {
  const codecs::ImageLimits& limits = request.limits;
  check_memory(dataset, limits, request.host_memory_limit_bytes);
  const auto start = std::chrono::steady_clock::now();
  detect::Detector detector(
      model, detector_options(request, options, model.has_anchors()));
  RankFindings mine(options.class_names.size());
  int64_t num_images = 0;
  for (int64_t i = world.rank(); i < dataset.size(); i += world.size()) {
    mine.add(examine(detector, dataset, i, limits, options));
    ++num_images;
    if (options.images_done) options.images_done(num_images);
  }
  ValidationResult result = summarise(world, std::move(mine), options);
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return result;
}

}  // namespace headroom::validation
