// Detections and labels of the evaluation vectors, per image.
//
// Threads: the test's one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/metrics/average_precision.h"

namespace headroom::metrics {

struct ImageResult {
  std::vector<Detection> detections;  // descending confidence
  std::vector<LabelledBox> labels;
};

struct EvaluationSet {
  std::vector<ImageResult> images;
  std::vector<int64_t> labels_per_class;

  // Records of all images, matched by the definition of YOLOv5 and by that of
  // COCO.
  std::vector<DetectionRecord> records() const;
  std::vector<DetectionRecord> coco_records(int64_t max_detections) const;
};

// `detections` rows image,x1,y1,x2,y2,conf,class; `labels` rows
// image,class,x1,y1,x2,y2.
EvaluationSet to_evaluation_set(const at::Tensor& detections,
                                const at::Tensor& labels, int64_t num_images,
                                int64_t num_classes);

}  // namespace headroom::metrics
