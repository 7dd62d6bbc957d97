// The figures of a validation, made of what was found in each image, the same
// however the boxes were found: in batches (validate.h) or tile by tile
// (tiled_validation.h).
//
// Rank b % ranks examines batch b. Gathered batches are back in their order, so
// that equal confidences count the same for any number of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "worker/metrics/average_precision.h"
#include "worker/metrics/confusion_matrix.h"

namespace headroom::validation {

struct ValidationOptions;  // validate.h

// The boxes found in one image and its labels, both in its pixels.
struct ImageFindings {
  int64_t sample = 0;  // a sample of the data set
  std::vector<metrics::Detection> detections;
  std::vector<metrics::LabelledBox> labels;
};

// What one validation batch contributes to the figures.
struct BatchFindings {
  int64_t images = 0;
  double box = 0, obj = 0, cls = 0;  // loss terms of the batch
  std::vector<int64_t> labels_per_class;
  std::vector<metrics::DetectionRecord> records;       // YOLOv5's matching
  std::vector<metrics::DetectionRecord> coco_records;  // pycocotools'
  std::vector<metrics::ConfusionCount> confusions;
  std::vector<ImageFindings> found;  // the images that are asked for
  std::vector<std::string> faults;   // images that could not be read

  void add(const BatchFindings& other);
};

// Returns the batches of all ranks, in their order, on every rank. Collective.
std::vector<BatchFindings> gather_findings(
    collectives::Communicator& communicator,
    const std::vector<BatchFindings>& mine);

struct ClassResult {
  std::string name;
  int64_t labels = 0;
  double precision = 0, recall = 0, map50 = 0, map = 0;
  int64_t class_index = 0;
};

struct ValidationResult {
  int64_t images = 0, labels = 0;
  // YOLOv5's definition, means over the classes that have labels.
  double precision = 0, recall = 0, map50 = 0, map = 0;
  // pycocotools' definition, at most 100 detections per image and class.
  double coco_map50 = 0, coco_map = 0;
  // Means over batches of the loss terms, with their gains.
  double box = 0, obj = 0, cls = 0;
  std::vector<ClassResult> classes;  // those that have labels
  std::vector<std::string> faults;   // images that could not be read
  double seconds = 0;
  // These are drawn or written where they are asked for.
  metrics::AveragePrecision curves;
  std::vector<metrics::ConfusionCount> confusions;
  std::vector<ImageFindings> found;  // batches in their order

  // What best.safetensors is chosen by.
  double fitness() const { return 0.1 * map50 + 0.9 * map; }
};

// Counts an image into its batch. `image.detections` are in descending
// confidence. REQUIRES: classes of labels below options.class_names.size().
void add_image(ImageFindings image, const ValidationOptions& options,
               BatchFindings& findings);

// The figures of all batches, in their order; `seconds` stays 0.
ValidationResult summarise(const std::vector<BatchFindings>& batches,
                           const ValidationOptions& options);

// mAP50-95 of each class; as in YOLOv5, the mean over those that have labels
// for those that have none.
std::vector<double> maps_by_class(const ValidationResult& result,
                                  int64_t num_classes);

}  // namespace headroom::validation
