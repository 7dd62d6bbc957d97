#include "worker/validation/validation_figures.h"

#include <algorithm>
#include <utility>

#include "worker/metrics/average_precision.h"
#include "worker/metrics/coco_ap.h"
#include "worker/metrics/confusion_matrix.h"

namespace headroom::validation {
namespace {

// Of an image that was asked for; its detections are in descending confidence.
void keep(ImageFindings image, const ValidationOptions& options,
          BatchFindings& findings) {
  if (!options.keeps_all && !options.pictured.contains(image.sample)) return;
  if (!options.keeps_all) {
    const auto last =
        std::find_if(image.detections.begin(), image.detections.end(),
                     [](const metrics::Detection& one) {
                       return one.confidence <= metrics::kConfusionConfidence;
                     });
    image.detections.erase(last, image.detections.end());
  }
  findings.found.push_back(std::move(image));
}

ValidationResult figures_of(BatchFindings all, int64_t num_batches,
                            const ValidationOptions& options) {
  const std::vector<std::string>& class_names = options.class_names;
  ValidationResult result;
  result.images = all.images;
  for (const int64_t count : all.labels_per_class) result.labels += count;
  metrics::AveragePrecision yolo =
      metrics::compute_average_precision(all.records, all.labels_per_class);
  result.precision = yolo.precision;
  result.recall = yolo.recall;
  result.map50 = yolo.map50;
  result.map = yolo.map;
  for (const metrics::ClassPrecision& entry : yolo.classes) {
    result.classes.push_back({class_names[entry.class_index], entry.labels,
                              entry.precision, entry.recall, entry.ap50(),
                              entry.mean_ap(), entry.class_index});
  }
  const metrics::CocoAveragePrecision coco =
      metrics::compute_coco_average_precision(all.coco_records,
                                              all.labels_per_class);
  result.coco_map50 = coco.map50;
  result.coco_map = coco.map;
  const auto batches = static_cast<double>(num_batches);
  result.box = all.box / batches;
  result.obj = all.obj / batches;
  result.cls = all.cls / batches;
  result.faults = all.faults;
  if (options.keeps_curves) result.curves = std::move(yolo);
  result.confusions = std::move(all.confusions);
  result.found = std::move(all.found);
  return result;
}

}  // namespace

void add_image(ImageFindings image, const ValidationOptions& options,
               BatchFindings& findings) {
  const auto append = [](auto& all, const auto& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  const std::vector<metrics::Detection>& detections = image.detections;
  const std::vector<metrics::LabelledBox>& labels = image.labels;
  ++findings.images;
  findings.labels_per_class.resize(options.class_names.size());
  for (const metrics::LabelledBox& label : labels) {
    ++findings.labels_per_class[label.class_index];
  }
  append(findings.records, metrics::match_records(detections, labels));
  append(findings.coco_records,
         metrics::coco_match_records(detections, labels));
  if (options.keeps_curves) {
    append(findings.confusions, metrics::count_confusions(detections, labels));
  }
  keep(std::move(image), options, findings);
}

ValidationResult summarise(const std::vector<BatchFindings>& batches,
                           const ValidationOptions& options) {
  BatchFindings pooled;
  for (const BatchFindings& batch : batches) pooled.add(batch);
  pooled.labels_per_class.resize(options.class_names.size());
  return figures_of(std::move(pooled), static_cast<int64_t>(batches.size()),
                    options);
}

std::vector<double> maps_by_class(const ValidationResult& result,
                                  int64_t num_classes) {
  std::vector<double> maps(static_cast<size_t>(num_classes), result.map);
  for (const ClassResult& entry : result.classes) {
    maps.at(static_cast<size_t>(entry.class_index)) = entry.map;
  }
  return maps;
}

}  // namespace headroom::validation
