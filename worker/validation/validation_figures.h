// Computes the metrics of a validation from the findings in single images. The
// findings may come from batches (validate.h) or from tiles
// (tiled_validation.h).
//
// Batch b is examined by rank b % ranks. Detections of equal confidence are
// ranked in the order of their batches, so the figures are the same for any
// number of ranks. Rank 0 computes them: it alone receives what the ranks have
// found, and sends the figures to the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/base/loss_terms.h"
#include "parallel/collectives/communicator.h"
#include "worker/metrics/average_precision.h"
#include "worker/metrics/confusion_matrix.h"
#include "worker/validation/class_records.h"

namespace headroom::validation {

struct ValidationOptions;  // validate.h

// The detections in one image and its labels, both in pixels of the image.
struct ImageFindings {
  int64_t sample = 0;  // index in the data set
  std::vector<metrics::Detection> detections;
  std::vector<metrics::LabelledBox> labels;
};

// The contribution of one batch to the metrics.
struct BatchFindings {
  int64_t images = 0;
  // The loss terms of the batch. While parts of a batch are added: without
  // anchors, not yet divided by the batch's sum of weights.
  LossTerms losses = {};
  double weights = 0;  // that sum; 0 for a head with anchors
  std::vector<int64_t> labels_per_class;
  std::vector<FoundRecord> records;
  std::vector<metrics::ConfusionCount> confusions;
  std::vector<ImageFindings> found;  // images that the options keep
  std::vector<std::string> faults;   // images that could not be read

  void add(const BatchFindings& other);
};

// What this rank has found in its batches so far.
struct RankFindings {
  explicit RankFindings(size_t num_classes)
      : records(num_classes), labels_per_class(num_classes) {}
  // Adds this rank's next batch.
  void add(BatchFindings batch);

  ClassRecords records;
  std::vector<int64_t> labels_per_class;
  std::vector<BatchFindings> batches;  // without their records and labels
};

struct ClassResult {
  std::string name;
  int64_t labels = 0;
  double precision = 0, recall = 0, map50 = 0, map = 0;
  int64_t class_index = 0;
};

struct ValidationResult {
  int64_t images = 0, labels = 0;
  // YOLOv5's definition: means over the classes that have labels.
  double precision = 0, recall = 0, map50 = 0, map = 0;
  // pycocotools' definition: at most 100 detections per image and class.
  double coco_map50 = 0, coco_map = 0;
  // The loss terms with their gains, as means over batches.
  LossTerms losses = {};
  std::vector<ClassResult> classes;  // classes with labels
  double seconds = 0;
  // Only rank 0 has the rest.
  std::vector<std::string> faults;  // images that could not be read
  // Data for pictures and files; set only if the options ask for it.
  metrics::AveragePrecision curves;
  std::vector<metrics::ConfusionCount> confusions;
  std::vector<ImageFindings> found;  // sorted by batch

  // The value by which best.safetensors is chosen. REQUIRES: one of the names
  // of --best-metric.
  double metric(const std::string& name) const;
};

// Adds an image to the findings of its batch. REQUIRES: `image.detections` in
// descending confidence; classes of labels below options.class_names.size().
void add_image(ImageFindings image, const ValidationOptions& options,
               BatchFindings& findings);

// The metrics of the batches of all ranks. `seconds` stays 0. Collective.
ValidationResult summarise(collectives::Communicator& ranks, RankFindings mine,
                           const ValidationOptions& options);

// mAP50-95 of each class. A class without labels gets the mean of the other
// classes, as in YOLOv5.
std::vector<double> maps_by_class(const ValidationResult& result,
                                  int64_t num_classes);

}  // namespace headroom::validation
