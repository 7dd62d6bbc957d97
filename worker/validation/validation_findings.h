// BatchFindings: what one validation batch contributes to the metrics, and how
// the ranks' batches come together again.
//
// Batch b was examined by rank b % ranks; gathered batches are back in their
// order, so that equal confidences count the same for any number of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "worker/metrics/average_precision.h"
#include "worker/metrics/confusion_matrix.h"

namespace headroom::validation {

// What was found in one image, in its pixels, and what there is.
struct ImageFindings {
  int64_t sample = 0;  // of the data set
  std::vector<metrics::Detection> detections;
  std::vector<metrics::LabelledBox> labels;
};

struct BatchFindings {
  int64_t images = 0;
  double box = 0, obj = 0, cls = 0;  // loss terms of the batch
  std::vector<int64_t> labels_per_class;
  std::vector<metrics::DetectionRecord> records;       // YOLOv5's matching
  std::vector<metrics::DetectionRecord> coco_records;  // pycocotools'
  std::vector<metrics::ConfusionCount> confusions;
  std::vector<ImageFindings> found;  // of the images that are asked for
  std::vector<std::string> faults;   // images that could not be read

  void add(const BatchFindings& other);
};

// Collective; the batches of all ranks, in their order, on every rank.
std::vector<BatchFindings> gather_findings(
    collectives::Communicator& communicator,
    const std::vector<BatchFindings>& mine);

}  // namespace headroom::validation
