#include "worker/validation/validation_figures.h"

#include <algorithm>
#include <string>
#include <utility>

#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/base/peer_wait.h"
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
void exchange_batches(Archive& archive, Batches& batches) {
  archive.size(batches);
  for (auto& batch : batches) {
    for (auto& term : batch.losses) archive.value(term);
    archive.value(batch.images);
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

// The figures that every rank gets.
template <typename Archive, typename Result>
void exchange_figures(Archive& archive, Result& result) {
  for (auto* count : {&result.images, &result.labels}) archive.value(*count);
  for (auto* figure : {&result.precision, &result.recall, &result.map50,
                       &result.map, &result.coco_map50, &result.coco_map}) {
    archive.value(*figure);
  }
  for (auto& term : result.losses) archive.value(term);
  archive.size(result.classes);
  for (auto& one : result.classes) {
    for (auto* count : {&one.class_index, &one.labels}) archive.value(*count);
    for (auto* figure : {&one.precision, &one.recall, &one.map50, &one.map}) {
      archive.value(*figure);
    }
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

// The records of one image, matched in both ways. coco_match_records() leaves
// out the last records of some classes.
std::vector<FoundRecord> found_records(
    const std::vector<metrics::Detection>& detections,
    const std::vector<metrics::LabelledBox>& labels) {
  const auto counted = metrics::coco_match_records(detections, labels);
  std::vector<FoundRecord> records;
  size_t next = 0;
  for (const metrics::DetectionRecord& one :
       metrics::match_records(detections, labels)) {
    const bool counts =
        next < counted.size() && counted[next].class_index == one.class_index;
    records.push_back(
        {one.confidence, one.class_index, metrics::bits_of(one.correct),
         counts ? metrics::bits_of(counted[next].correct) : kNotCounted});
    if (counts) ++next;
  }
  return records;
}

std::vector<int64_t> counts_of(const ClassRecords& records) {
  std::vector<int64_t> counts;
  for (size_t c = 0; c < records.num_classes(); ++c) {
    counts.push_back(records.count(c));
  }
  return counts;
}

// Adds up the batches of all ranks in their order.
void add_batches(std::vector<std::vector<BatchFindings>> ranks,
                 ValidationResult& result) {
  BatchFindings all;
  size_t num_batches = 0, longest = 0;
  for (const auto& own : ranks) longest = std::max(longest, own.size());
  for (size_t turn = 0; turn < longest; ++turn) {
    for (std::vector<BatchFindings>& own : ranks) {
      if (turn >= own.size()) continue;
      all.add(std::exchange(own[turn], {}));
      ++num_batches;
    }
  }
  const auto batches = static_cast<double>(num_batches);
  result.images = all.images;
  for (size_t term = 0; term < kNumLossTerms; ++term) {
    result.losses[term] = all.losses[term] / batches;
  }
  result.faults = std::move(all.faults);
  result.confusions = std::move(all.confusions);
  result.found = std::move(all.found);
}

void add_metrics(RecordMerge& merge, const std::vector<int64_t>& labels,
                 const ValidationOptions& options, ValidationResult& result) {
  metrics::AveragePrecision yolo;
  metrics::CocoAveragePrecision coco;
  for (size_t c = 0; c < labels.size(); ++c) {
    const auto index = static_cast<int64_t>(c);
    metrics::ClassAveragePrecision one(index, labels[c]);
    metrics::ClassRanking coco_one;
    merge.next_class([&](const ClassRecord& record) {
      one.add(record.confidence, record.yolov5);
      if (record.coco != kNotCounted) coco_one.add(record.coco);
    });
    result.labels += labels[c];
    if (labels[c] == 0) continue;
    one.finish(yolo);
    metrics::add_class(coco_one, index, labels[c], coco);
  }
  metrics::take_means(yolo);
  metrics::take_means(coco);
  result.precision = yolo.precision;
  result.recall = yolo.recall;
  result.map50 = yolo.map50;
  result.map = yolo.map;
  result.coco_map50 = coco.map50;
  result.coco_map = coco.map;
  for (const metrics::ClassPrecision& entry : yolo.classes) {
    result.classes.push_back(
        {options.class_names[entry.class_index], entry.labels, entry.precision,
         entry.recall, entry.ap50(), entry.mean_ap(), entry.class_index});
  }
  if (options.keeps_curves) result.curves = std::move(yolo);
}

void send(collectives::Communicator& ranks, RankFindings mine) {
  RecordWriter writer;
  const std::vector<int64_t> counts = counts_of(mine.records);
  exchange_all(writer, mine.labels_per_class);
  exchange_all(writer, counts);
  exchange_batches(writer, mine.batches);
  mine.batches = {};
  collectives::send_bytes(ranks, writer.bytes(), /*to=*/0);
  send_records(ranks, std::move(mine.records));
}

ValidationResult receive(collectives::Communicator& ranks, RankFindings mine,
                         const ValidationOptions& options) {
  std::vector<std::vector<int64_t>> counts = {counts_of(mine.records)};
  std::vector<std::vector<BatchFindings>> batches;
  batches.push_back(std::move(mine.batches));
  std::vector<int64_t>& labels = mine.labels_per_class;
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const std::string bytes = collectives::receive_bytes(ranks, rank);
    RecordReader reader(bytes);
    std::vector<int64_t> own_labels;
    exchange_all(reader, own_labels);
    for (size_t c = 0; c < labels.size(); ++c) labels[c] += own_labels.at(c);
    exchange_all(reader, counts.emplace_back());
    exchange_batches(reader, batches.emplace_back());
  }
  ValidationResult result;
  add_batches(std::move(batches), result);
  RecordMerge merge(ranks, std::move(mine.records), std::move(counts));
  add_metrics(merge, labels, options, result);
  return result;
}

}  // namespace

void BatchFindings::add(const BatchFindings& other) {
  images += other.images;
  for (size_t term = 0; term < kNumLossTerms; ++term) {
    losses[term] += other.losses[term];
  }
  weights += other.weights;
  labels_per_class.resize(
      std::max(labels_per_class.size(), other.labels_per_class.size()));
  for (size_t c = 0; c < other.labels_per_class.size(); ++c) {
    labels_per_class[c] += other.labels_per_class[c];
  }
  append(records, other.records);
  append(confusions, other.confusions);
  append(found, other.found);
  append(faults, other.faults);
}

void RankFindings::add(BatchFindings batch) {
  records.add_batch(std::exchange(batch.records, {}));
  for (size_t c = 0; c < batch.labels_per_class.size(); ++c) {
    labels_per_class.at(c) += batch.labels_per_class[c];
  }
  batch.labels_per_class = {};
  batches.push_back(std::move(batch));
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
  append(findings.records, found_records(detections, labels));
  if (options.keeps_curves) {
    append(findings.confusions, metrics::count_confusions(detections, labels));
  }
  keep(std::move(image), options, findings);
}

ValidationResult summarise(collectives::Communicator& ranks, RankFindings mine,
                           const ValidationOptions& options) {
  ValidationResult result;
  RecordWriter figures;
  if (ranks.rank() == 0) {
    const LongWork working;
    result = receive(ranks, std::move(mine), options);
    exchange_figures(figures, std::as_const(result));
  } else {
    send(ranks, std::move(mine));
  }
  const std::string told =
      collectives::broadcast_bytes(ranks, figures.bytes(), /*root=*/0);
  if (ranks.rank() == 0) return result;
  RecordReader reader(told);
  exchange_figures(reader, result);
  for (ClassResult& one : result.classes) {
    one.name = options.class_names[one.class_index];
  }
  return result;
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
