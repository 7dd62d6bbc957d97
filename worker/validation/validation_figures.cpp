#include "worker/validation/validation_figures.h"

#include <algorithm>
#include <utility>

#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/collectives/gather.h"
#include "worker/metrics/coco_evaluation.h"
#include "worker/validation/validate.h"

namespace headroom::validation {
namespace {

// One function both writes and reads findings: `archive` is a RecordWriter or a
// RecordReader.
template <typename Archive, typename Values>
void exchange_all(Archive& archive, Values& values) {
  archive.size(values);
  for (auto& v : values) archive.value(v);
}

template <typename Archive, typename Batches>
void exchange(Archive& archive, Batches& batches) {
  archive.size(batches);
  for (auto& batch : batches) {
    for (auto* count : {&batch.box, &batch.obj, &batch.cls}) {
      archive.value(*count);
    }
    archive.value(batch.images);
    exchange_all(archive, batch.labels_per_class);
    exchange_all(archive, batch.records);
    exchange_all(archive, batch.coco_records);
    exchange_all(archive, batch.confusions);
    archive.size(batch.found);
    for (auto& image : batch.found) {
      archive.value(image.sample);
      exchange_all(archive, image.detections);
      exchange_all(archive, image.labels);
    }
    archive.size(batch.faults);
    for (auto& fault : batch.faults) exchange_all(archive, fault);
  }
}

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Keeps an image's findings if the options ask for them. REQUIRES: detections
// in descending confidence.
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

void BatchFindings::add(const BatchFindings& other) {
  images += other.images;
  box += other.box;
  obj += other.obj;
  cls += other.cls;
  labels_per_class.resize(
      std::max(labels_per_class.size(), other.labels_per_class.size()));
  for (size_t c = 0; c < other.labels_per_class.size(); ++c) {
    labels_per_class[c] += other.labels_per_class[c];
  }
  append(records, other.records);
  append(coco_records, other.coco_records);
  append(confusions, other.confusions);
  append(found, other.found);
  append(faults, other.faults);
}

std::vector<BatchFindings> gather_findings(
    collectives::Communicator& communicator,
    const std::vector<BatchFindings>& mine) {
  std::vector<std::vector<BatchFindings>> ranks;
  size_t longest = 0;
  RecordWriter writer;
  exchange(writer, mine);
  for (const std::string& bytes :
       collectives::gather_bytes(communicator, writer.bytes())) {
    RecordReader reader(bytes);
    exchange(reader, ranks.emplace_back());
    longest = std::max(longest, ranks.back().size());
  }
  std::vector<BatchFindings> all;
  for (size_t turn = 0; turn < longest; ++turn) {
    for (std::vector<BatchFindings>& rank : ranks) {
      if (turn < rank.size()) all.push_back(std::move(rank[turn]));
    }
  }
  return all;
}

void add_image(ImageFindings image, const ValidationOptions& options,
               BatchFindings& findings) {
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

double ValidationResult::metric(const std::string& name) const {
  if (name == "mAP50") return map50;
  if (name == "mAP") return map;
  if (name == "recall") return recall;
  if (name == "precision") return precision;
  HEADROOM_CHECK(name == "fitness", "no metric " + name);
  return 0.1 * map50 + 0.9 * map;
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
