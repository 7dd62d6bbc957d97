#include "tests/worker/metrics/ap_cases.h"

#include "worker/metrics/coco_evaluation.h"

namespace headroom::metrics {

std::vector<DetectionRecord> EvaluationSet::records() const {
  std::vector<DetectionRecord> all;
  for (const ImageResult& image : images) {
    const auto part = match_records(image.detections, image.labels);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<DetectionRecord> EvaluationSet::coco_records(
    int64_t max_detections) const {
  std::vector<DetectionRecord> all;
  for (const ImageResult& image : images) {
    const auto part =
        coco_match_records(image.detections, image.labels, max_detections);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

EvaluationSet to_evaluation_set(const at::Tensor& detections,
                                const at::Tensor& labels, int64_t num_images,
                                int64_t num_classes) {
  EvaluationSet set;
  set.images.resize(static_cast<size_t>(num_images));
  set.labels_per_class.resize(static_cast<size_t>(num_classes));
  const auto d = detections.accessor<float, 2>();
  for (int64_t i = 0; i < detections.size(0); ++i)
    set.images[static_cast<size_t>(d[i][0])].detections.push_back(
        {{d[i][1], d[i][2], d[i][3], d[i][4]},
         d[i][5],
         static_cast<int32_t>(d[i][6])});
  const auto l = labels.accessor<float, 2>();
  for (int64_t i = 0; i < labels.size(0); ++i) {
    const auto class_index = static_cast<int32_t>(l[i][1]);
    set.images[static_cast<size_t>(l[i][0])].labels.push_back(
        {{l[i][2], l[i][3], l[i][4], l[i][5]}, class_index});
    ++set.labels_per_class[static_cast<size_t>(class_index)];
  }
  return set;
}

}  // namespace headroom::metrics
