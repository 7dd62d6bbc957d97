#include "worker/data_question.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "configs/data_config.h"
#include "configs/model_table.h"
#include "configs/model_table_text.h"
#include "configs/row_cost.h"
#include "configs/scalar.h"
#include "parallel/base/check.h"
#include "parallel/plan/label_bound.h"
#include "worker/anchors/anchor_choice.h"
#include "worker/data/box_counts.h"
#include "worker/data/image_bands.h"
#include "worker/data/random.h"
#include "worker/data/random_crop.h"
#include "worker/model/weights_anchors.h"
#include "worker/model/weights_file.h"

namespace headroom {
namespace {

// As training varies the size of an image.
constexpr double kLeastScale = 0.9, kLargestScale = 1.1;
constexpr uint64_t kScaleEpoch = 1;  // 0 is the search's

void check_number(const WhichAnchors& which, const ModelTable& table) {
  if (which.per_level == 0) return;
  const auto has = static_cast<int64_t>(table.anchors.front().size());
  if (std::llround(which.per_level) == has) return;
  throw Error("config",
              "hyp.anchors is " + exact_text(which.per_level) + ", but " +
                  table.name + " has " + std::to_string(has) +
                  " anchors per level and keeps that number",
              "use --set hyp.anchors=" + std::to_string(has) +
                  ", or a --cfg with another number");
}

// Weights may be of a model that has no name to be found by.
ModelTable table_of(const WhichAnchors& which) {
  ModelTable table =
      which.weights.empty()
          ? load_model_table(which.model)
          : table_of_weights(read_weights_metadata(which.weights),
                             which.weights);
  check_number(which, table);
  if (!which.weights.empty()) {
    if (auto anchors = anchors_in_weights(which.weights, table)) {
      table.anchors = *std::move(anchors);
    }
  }
  return table;
}

void add_boxes(const Dataset& dataset, const WhichAnchors& which,
               const ModelTable& table, AnchorQuestion& question) {
  const int64_t stride = largest_stride(row_costs(table));
  const int64_t height = rounded_image_size(which.image_height, stride);
  const int64_t width = rounded_image_size(which.image_width, stride);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    RandomStream random(which.seed, kScaleEpoch, static_cast<uint64_t>(i),
                        RandomPurpose::kAnchors);
    const double scale = random.uniform(kLeastScale, kLargestScale);
    const ImageSize image = dataset.image_size(i);
    const bool is_cut =
        which.random_crop && crop_size(image, height, width) != image;
    const int64_t fit_height = is_cut ? image.height : height;
    const int64_t fit_width = is_cut ? image.width : width;
    for (const BoxLabel& label : dataset.labels(i)) {
      question.boxes.push_back(
          size_in_input(label, image, fit_height, fit_width, 1));
      question.varied.push_back(
          size_in_input(label, image, fit_height, fit_width, scale));
    }
  }
}

AnchorChoice judge(const Dataset& dataset, const WhichAnchors& which,
                   const ModelTable& table, int64_t threads) {
  AnchorQuestion question;
  question.current = table.anchors;
  question.threshold = which.threshold;
  question.must_find = which.per_level > 0;
  question.seed = which.seed;
  question.num_threads = threads;
  add_boxes(dataset, which, table, question);
  return choose_anchors(question);
}

AnchorChoice keep(const WhichAnchors& which, const ModelTable& table) {
  AnchorChoice choice;
  choice.anchors = table.anchors;
  choice.reason = "not judged, those of " +
                  (which.weights.empty() ? table.name : which.weights);
  return choice;
}

}  // namespace

std::string data_answer_json(const DataQuestion& question) {
  const DataConfig config = load_data_config(question.data);
  IndexOptions options;
  options.single_cls = question.single_cls;
  options.num_threads = question.threads;
  std::optional<ModelTable> table;
  if (question.anchors) table = table_of(*question.anchors);
  options.limits.bands =
      table ? bands_of_images(table->input_channels) : kAnyBands;
  std::optional<IndexedDataset> indexed;
  if (table && !question.anchors->keep) {
    indexed = index_dataset(config, Split::kTrain, options);
  }
  nlohmann::json answer = nlohmann::json::object();
  if (question.label_counts) {
    const BoxCounts counts = indexed
                                 ? count_boxes(*indexed)
                                 : count_boxes(config, Split::kTrain, options);
    LabelStatistics statistics = label_statistics(counts.boxes);
    statistics.outlines = counts.polygons;
    answer["label_counts"] = to_text(statistics);
  }
  if (table) {
    const WhichAnchors& which = *question.anchors;
    const AnchorChoice choice =
        indexed ? judge(indexed->dataset, which, *table, question.threads)
                : keep(which, *table);
    // Those of a model file need not be said.
    const bool is_own = which.weights.empty() && !choice.found;
    answer["anchors"] = is_own ? "" : to_text(choice.anchors);
    answer["anchors_reason"] = choice.reason;
  }
  return answer.dump();
}

}  // namespace headroom
