#include "worker/tools/dataset_query.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "configs/data_config.h"
#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "configs/run_config.h"
#include "configs/yaml/scalar.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/text.h"
#include "parallel/predict/label_bound.h"
#include "worker/anchors/anchor_choice.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/labels/index_cache.h"
#include "worker/data/labels/measured_range.h"
#include "worker/data/loader/training_part.h"
#include "worker/data/sampling/random.h"
#include "worker/data/tiles/random_crop.h"
#include "worker/weights/weights_file.h"

namespace headroom::tools {
namespace {

using configs::RunConfig;

// The range of scales by which training changes an image's size.
constexpr double kLeastScale = 0.9, kLargestScale = 1.1;
constexpr uint64_t kScaleEpoch = 1;  // the anchor search uses epoch 0

void check_number(const RunConfig& run, const layers::ModelTable& table) {
  if (run.hyp.anchors == 0 || table.anchors.empty()) return;
  const auto has = static_cast<int64_t>(table.anchors.front().size());
  if (std::llround(run.hyp.anchors) == has) return;
  throw Error(
      "config",
      cat("hyp.anchors is ", yaml::exact_text(run.hyp.anchors), ", but ",
          table.name, " has ", has, " anchors per level and keeps that number"),
      cat("use --set hyp.anchors=", has, ", or a --cfg with another number"));
}

// Whether the anchors come from the weights: without --cfg they do.
bool brings_anchors(const RunConfig& run) { return run.cfg.empty(); }

// The model of the run. Without --cfg it is read from the weights, whose model
// may have no name.
layers::ModelTable table_of(const RunConfig& run) {
  layers::ModelTable table =
      brings_anchors(run)
          ? layers::table_of_weights(
                weights::read_weights_metadata(run.weights), run.weights)
          : layers::load_model_table(run.cfg);
  check_number(run, table);
  if (brings_anchors(run)) {
    if (auto anchors = weights::anchors_in_weights(run.weights, table)) {
      table.anchors = *std::move(anchors);
    }
  }
  return table;
}

void add_boxes(const labels::Dataset& dataset, const RunConfig& run,
               const layers::ModelTable& table,
               anchors::AnchorQuestion& question) {
  const int64_t stride = layers::largest_stride(layers::layer_costs(table));
  const int64_t height = layers::rounded_image_size(run.image_height, stride);
  const int64_t width = layers::rounded_image_size(run.image_width, stride);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    sampling::RandomStream random(run.seed, kScaleEpoch,
                                  static_cast<uint64_t>(i),
                                  sampling::RandomPurpose::kAnchors);
    const double scale = random.uniform(kLeastScale, kLargestScale);
    const codecs::ImageSize image = dataset.image_size(i);
    const bool is_cut =
        run.random_crop && tiles::crop_size(image, height, width) != image;
    const int64_t fit_height = is_cut ? image.height : height;
    const int64_t fit_width = is_cut ? image.width : width;
    for (const labels::BoxLabel& label : dataset.labels(i)) {
      question.boxes.push_back(
          anchors::size_in_input(label, image, fit_height, fit_width, 1));
      question.varied.push_back(
          anchors::size_in_input(label, image, fit_height, fit_width, scale));
    }
  }
}

anchors::AnchorChoice judge(const labels::Dataset& dataset,
                            const RunConfig& run,
                            const layers::ModelTable& table, int64_t threads) {
  anchors::AnchorQuestion question;
  question.current = table.anchors;
  question.threshold = run.hyp.anchor_t;
  question.must_find = run.hyp.anchors > 0;
  question.seed = run.seed;
  question.num_threads = threads;
  add_boxes(dataset, run, table, question);
  return anchors::choose_anchors(question);
}

anchors::AnchorChoice keep(const RunConfig& run,
                           const layers::ModelTable& table) {
  anchors::AnchorChoice choice;
  choice.anchors = table.anchors;
  choice.reason = table.anchors.empty()
                      ? "the head of " + table.name + " has none"
                      : "not judged, those of " +
                            (brings_anchors(run) ? run.weights : table.name);
  return choice;
}

}  // namespace

std::string data_answer_json(const std::vector<std::string>& words) {
  const std::string fd = words.empty() ? "" : words.front();
  const RunConfig run = configs::parse_run_config(
      yaml::read_config_file("/proc/self/fd/" + fd, "config"),
      "the launcher's run.yaml");
  const auto wants = [&](const char* key) {
    return std::find(words.begin(), words.end(), key) != words.end();
  };
  const configs::DataConfig config = configs::load_data_config(run.data);
  const int64_t threads = std::max<int64_t>(1, run.loader_threads);
  labels::IndexOptions options;
  options.single_cls = run.single_cls;
  options.num_threads = threads;
  if (!run.noindex) options.kept_in = labels::index_folder();
  std::optional<layers::ModelTable> table;
  if (wants("anchors")) table = table_of(run);
  options.limits.bands = table ? layers::picture_channels(table->input_channels)
                               : codecs::kAnyBands;
  options.limits.as_stored = config.range.has_value();
  std::optional<labels::IndexedDataset> indexed;
  const bool measures =
      wants("value_range") && config.range && config.range->is_measured();
  const bool judges = table && !table->anchors.empty() && !run.noautoanchor;
  if (judges || measures || run.fraction < 1) {
    indexed = labels::index_dataset(config, labels::Split::kTrain, options);
    loader::take_fraction(run, indexed->dataset);
    for (const std::string& note : indexed->report.notes) log::info(note);
  }
  nlohmann::json answer = nlohmann::json::object();
  if (wants("label_counts")) {
    const labels::BoxCounts counts =
        indexed ? labels::count_boxes(*indexed)
                : labels::count_boxes(config, labels::Split::kTrain, options);
    predict::LabelStatistics statistics =
        predict::label_statistics(counts.boxes);
    statistics.outlines = counts.polygons;
    answer["label_counts"] = predict::to_text(statistics);
  }
  if (wants("value_range") && config.range) {
    answer["value_range"] =
        to_text(measures ? labels::measured_range(indexed->dataset,
                                                  *config.range, threads)
                         : config.range->ranges);
  }
  if (table) {
    const anchors::AnchorChoice choice =
        judges ? judge(indexed->dataset, run, *table, threads)
               : keep(run, *table);
    // Anchors that the model file already has are not repeated.
    const bool is_own = !brings_anchors(run) && !choice.found;
    answer["anchors"] = is_own ? "" : layers::to_text(choice.anchors);
    answer["anchors_reason"] = choice.reason;
  }
  return answer.dump();
}

}  // namespace headroom::tools
