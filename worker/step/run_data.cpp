#include "worker/step/run_data.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "configs/class_weights.h"
#include "configs/data_config.h"
#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "configs/yaml/scalar.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/predict/memory_request.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/index_cache.h"
#include "worker/data/labels/shared_index.h"
#include "worker/data/loader/image_weights.h"
#include "worker/data/loader/synthetic.h"
#include "worker/data/loader/training_part.h"
#include "worker/loss/target_assignment.h"
#include "worker/weights/weights_file.h"

namespace headroom::step {
namespace {

constexpr const char* kDefaultModel = "yolov5s";

bool pastes_objects(const configs::RunConfig& config) {
  return config.command == "train" && config.hyp.copy_paste > 0 &&
         config.hyp.mosaic > 0 && !config.rect;
}

labels::IndexedDataset read_split(const configs::DataConfig& data,
                                  labels::Split split,
                                  const configs::RunConfig& config,
                                  const RunData& inputs) {
  labels::IndexOptions options;
  options.limits.bands = layers::picture_channels(inputs.table.input_channels);
  options.limits.ranges = value_ranges(config);
  options.single_cls = config.single_cls;
  // More threads than cores help here: the work mostly waits for files.
  options.num_threads = std::max(options.num_threads, config.loader_threads);
  if (!config.noindex) options.kept_in = labels::index_folder();
  options.keep_outlines =
      split == labels::Split::kTrain && pastes_objects(config);
  return labels::index_dataset(data, split, options);
}

void read_model(const configs::RunConfig& config, RunData& inputs) {
  if (config.cfg.empty() && !config.weights.empty()) {
    const auto metadata = weights::read_weights_metadata(config.weights);
    inputs.table = layers::table_of_weights(metadata, config.weights);
    inputs.model = metadata.at("model");
    return;
  }
  inputs.model = config.cfg.empty() ? kDefaultModel : config.cfg;
  inputs.table = layers::load_model_table(inputs.model);
}

// Uses the anchors of the configuration. If the configuration has no anchors
// and --cfg is not set, uses the anchors of --weights.
void use_anchors(const configs::RunConfig& config, layers::ModelTable& table) {
  if (config.anchors.empty()) {
    if (!config.cfg.empty() || config.weights.empty()) return;
    table.anchors = weights::anchors_in_weights(config.weights, table)
                        .value_or(table.anchors);
    return;
  }
  if (table.anchors.empty()) {
    throw Error("config", "the head of " + table.name + " has no anchors",
                "leave anchors out, or train a model that has them, for "
                "example --cfg yolov5s");
  }
  layers::AnchorList anchors = configs::anchors_of_run(config);
  const auto count = [](const layers::AnchorList& list) {
    return cat(list.size(), " levels of ",
               list.empty() ? 0 : list.front().size());
  };
  if (count(anchors) != count(table.anchors)) {
    throw Error("config",
                "anchors has " + count(anchors) + ", but " + table.name +
                    " has " + count(table.anchors),
                "write as many, or leave anchors out");
  }
  table.anchors = std::move(anchors);
}

// Throws Error if the run's value range does not fit the images.
void check_range(const configs::RunConfig& config,
                 const configs::DataConfig& data, const RunData& inputs) {
  const std::string why =
      range_error(value_ranges(config),
                  layers::picture_channels(inputs.table.input_channels));
  if (!why.empty()) {
    throw Error("data", data.file.string() + ": " + why,
                "write one pair for all, or one for each band");
  }
  // Validation, resumed runs and runs with a range of their own ignore the
  // range in data.yaml.
  if (config.command == "val" || !config.resume.empty() || !data.range ||
      !config.value_range.empty()) {
    return;
  }
  // The launcher could not read data.yaml, so it planned for 8-bit images.
  throw Error(
      "data",
      data.file.string() + " has a range, but the run was defined without one",
      "start it where data.yaml can be read, or add --set "
      "value_range=LOW,HIGH");
}

// --random-crop cuts boxes to the window, but not outlines.
void check_outlines(const configs::RunConfig& config,
                    const labels::Dataset& training) {
  const int64_t polygons = training.num_polygons();
  if (!config.random_crop || !pastes_objects(config) || polygons == 0) return;
  throw Error("config",
              cat("--random-crop cuts boxes, but not the outlines of ",
                  counted(polygons, "label"), " that hyp.copy_paste ",
                  yaml::exact_text(config.hyp.copy_paste), " needs"),
              "add --set hyp.copy_paste=0");
}

// Reads only a few images.
std::string note_on_reduced_bits(const configs::RunConfig& config,
                                 const labels::Dataset& images) {
  constexpr int64_t kLookedAt = 8;
  const int64_t count = std::min(kLookedAt, images.size());
  for (int64_t i = 0; i < count; ++i) {
    const std::filesystem::path file = images.path(i * images.size() / count);
    if (!codecs::has_deep_samples(file)) continue;
    return "images such as " + file.string() +
           " have more than 8 bits and are reduced to 8: write range: [low, "
           "high] into " +
           config.data + " to keep them";
  }
  return "";
}

}  // namespace

labels::Split split_of(const configs::RunConfig& config) {
  if (config.task == "train") return labels::Split::kTrain;
  return config.task == "test" ? labels::Split::kTest : labels::Split::kVal;
}

namespace {

// The weight of each class, by the labels of the images that are trained on,
// or judged in a validation.
std::vector<double> class_weights(const configs::RunConfig& config,
                                  const RunData& inputs) {
  std::vector<int64_t> labels(inputs.class_names.size());
  const auto& images = inputs.training ? inputs.training : inputs.validation;
  for (int64_t i = 0; images && i < images->size(); ++i) {
    for (const labels::BoxLabel& label : images->labels(i)) {
      ++labels[static_cast<size_t>(label.class_index)];
    }
  }
  return configs::weights_by_class(config, inputs.class_names, labels);
}

// What the content of the indexes follows from, besides the files.
std::string index_key(const configs::RunConfig& config, const RunData& inputs) {
  return cat(config.command, "\n", config.task, "\n", config.data, "\n",
             config.seed, "\n", yaml::exact_text(config.fraction), "\n",
             config.single_cls, pastes_objects(config), "\n",
             inputs.table.input_channels, "\n", to_text(value_ranges(config)));
}

// Reads all but the weights of the classes.
RunData read_files(const configs::RunConfig& config, int shared_index) {
  RunData inputs;
  read_model(config, inputs);
  if (config.command == "train") use_anchors(config, inputs.table);
  if (config.synthetic_input) {
    for (int64_t i = 0; i < loader::kSyntheticClasses; ++i) {
      inputs.class_names.push_back(cat("class", i));
    }
    return inputs;
  }
  if (config.data.empty()) {
    throw Error("data", "no data set was given", "give one with --data FILE");
  }
  const configs::DataConfig data = configs::load_data_config(config.data);
  inputs.range = data.range;
  check_range(config, data, inputs);
  const bool trains = config.command != "val";
  std::vector<labels::IndexedDataset> splits = labels::SharedIndex::read(
      shared_index, index_key(config, inputs),
      [&] {
        std::vector<labels::IndexedDataset> read;
        if (trains) {
          read.push_back(
              read_split(data, labels::Split::kTrain, config, inputs));
          loader::take_fraction(config, read.back().dataset);
          check_outlines(config, read.back().dataset);
        }
        read.push_back(
            read_split(data, trains ? labels::Split::kVal : split_of(config),
                       config, inputs));
        return read;
      },
      inputs.sharing_problem);
  if (trains) {
    inputs.training = std::move(splits.front().dataset);
    inputs.training_images = splits.front().report.images;
  }
  inputs.validation = std::move(splits.back().dataset);
  for (labels::IndexedDataset& split : splits) {
    inputs.reports.push_back(std::move(split.report));
  }
  inputs.class_names = inputs.validation->class_names();
  return inputs;
}

}  // namespace

RunData read_data(const configs::RunConfig& config, int shared_index) {
  RunData inputs = read_files(config, shared_index);
  inputs.class_weights = class_weights(config, inputs);
  return inputs;
}

std::string note_on_fraction(const configs::RunConfig& config,
                             const RunData& inputs) {
  if (config.fraction == 1 || !inputs.training) return "";
  return cat("--fraction ", yaml::exact_text(config.fraction), " trains on ",
             inputs.training->size(), " of ",
             counted(inputs.training_images, "image"), ", chosen by --seed ",
             config.seed);
}

std::string note_on_class_weights(const configs::RunConfig& config,
                                  const RunData& inputs) {
  const std::vector<double>& weights = inputs.class_weights;
  if (std::ranges::count(weights, weights.front()) == std::ssize(weights)) {
    return "";
  }
  std::string text = "hyp.cls_pw " + config.hyp.cls_pw + " weighs positives";
  constexpr size_t kShown = 20;
  for (size_t c = 0; c < std::min(kShown, weights.size()); ++c) {
    text += (c == 0 ? ": " : ", ") + inputs.class_names[c] + " " +
            significant_text(weights[c], 3);
  }
  return text + (weights.size() > kShown ? ", ..." : "");
}

std::string note_on_copy_paste(const configs::RunConfig& config,
                               const RunData& inputs) {
  if (config.hyp.copy_paste <= 0 || !inputs.training) return "";
  const std::string what = "hyp.copy_paste " +
                           yaml::exact_text(config.hyp.copy_paste) +
                           " changes nothing: ";
  if (!pastes_objects(config)) {
    return what + "it is part of mosaics, and there are none";
  }
  if (inputs.training->num_polygons() > 0) return "";
  return what + "no label of train is a polygon";
}

std::string note_on_colours(const configs::RunConfig& config,
                            const RunData& inputs) {
  const int bands = layers::picture_channels(inputs.table.input_channels);
  const bool is_deep = !config.value_range.empty();
  if (config.command != "train" || (bands == codecs::kColours && !is_deep)) {
    return "";
  }
  const std::pair<const char*, double> asked[] = {{"hsv_h", config.hyp.hsv_h},
                                                  {"hsv_s", config.hyp.hsv_s},
                                                  {"hsv_v", config.hyp.hsv_v},
                                                  {"gray", config.hyp.gray},
                                                  {"clahe", config.hyp.clahe}};
  std::string names;
  for (const auto& [name, value] : asked) {
    if (value <= 0) continue;
    names += (names.empty() ? "hyp." : ", hyp.") + std::string(name) + " " +
             yaml::exact_text(value);
  }
  if (names.empty()) return "";
  return names + " change nothing: they are about " +
         (is_deep ? "colours of 8 bits, and the images have 16"
                  : cat("red, green and blue, and the images have ", bands,
                        " bands (ch)"));
}

std::string note_on_image_weights(const configs::RunConfig& config,
                                  const RunData& inputs) {
  if (!config.image_weights || !inputs.training) return "";
  const int64_t images = loader::images_without_labels(*inputs.training);
  if (images == 0) return "";
  return cat("--image-weights never draws images without labels, ", images,
             " of ", inputs.training->size(), " here");
}

ValueRanges value_ranges(const configs::RunConfig& config) {
  if (config.command != "val" || config.weights.empty()) {
    return configs::value_ranges_of(config);
  }
  return layers::trained_ranges(weights::read_weights_metadata(config.weights),
                                config.weights);
}

std::string note_on_range(const configs::RunConfig& config,
                          const RunData& inputs) {
  const ValueRanges used = value_ranges(config);
  const std::string has =
      used.empty() ? "8 bits" : "the range " + to_text(used);
  const bool judges = config.command == "val";
  const bool is_asked_for_another =
      inputs.range && (used.empty() || (!inputs.range->is_measured() &&
                                        inputs.range->ranges != used));
  if (is_asked_for_another) {
    return configs::to_yaml(*inputs.range) + " of " + config.data +
           " is not used: " +
           (judges ? config.weights + " was trained with " : "this run has ") +
           has;
  }
  if (!judges && config.resume.empty() && !config.weights.empty()) {
    const ValueRanges before = layers::trained_ranges(
        weights::read_weights_metadata(config.weights), config.weights);
    if (!before.empty() && before != used) {
      return config.weights + " was trained with the range " + to_text(before) +
             ", this run has " + has;
    }
  }
  const auto& images = inputs.training ? inputs.training : inputs.validation;
  // Weights that are validated keep the value range of their training.
  return used.empty() && images && !judges
             ? note_on_reduced_bits(config, *images)
             : "";
}

at::ScalarType scalar_type_of(configs::Precision precision) {
  return precision == configs::Precision::kFp64 ? at::kDouble : at::kFloat;
}

at::ScalarType map_type_of(configs::Precision precision) {
  if (precision == configs::Precision::kBf16) return at::kBFloat16;
  if (precision == configs::Precision::kFp16) return at::kHalf;
  return scalar_type_of(precision);
}

loader::LoaderOptions loader_options(const configs::RunConfig& config,
                                     const model::LayerGraph& model) {
  loader::LoaderOptions options;
  options.seed = config.seed;
  options.stride = model.max_stride();
  options.bands = layers::picture_channels(model.input_channels());
  options.ranges = value_ranges(config);
  options.image_height =
      layers::rounded_image_size(config.image_height, options.stride);
  options.image_width =
      layers::rounded_image_size(config.image_width, options.stride);
  options.hyp = config.hyp;
  options.random_crop = config.random_crop;
  options.num_threads = config.loader_threads;
  options.begin_thread = &activations::CountingAllocator::count_as_host_memory;
  options.host_memory_limit_bytes = config.host_memory_limit;
  options.assign = [levels = model.levels(), threshold = config.hyp.anchor_t,
                    type = scalar_type_of(config.precision)](
                       const std::vector<loss::LabelRow>& labels,
                       int64_t height, int64_t width) {
    // Without anchors the step assigns labels, because it needs predictions.
    if (levels.front().anchors.empty()) {
      return std::vector<loss::LevelTargets>(levels.size());
    }
    std::vector<loss::LevelGrid> grids;
    for (const model::LayerGraph::Level& level : levels) {
      loss::LevelGrid grid{height / level.stride, width / level.stride, {}};
      for (const auto& [w, h] : level.anchors) {
        grid.anchors.emplace_back(w / static_cast<double>(level.stride),
                                  h / static_cast<double>(level.stride));
      }
      grids.push_back(std::move(grid));
    }
    return loss::assign_targets(labels, grids, threshold, type);
  };
  return options;
}

loader::PackTargets target_packing(
    const model::LayerGraph& model,
    const std::optional<predict::LabelBound>& bound) {
  // Without anchors the step packs the labels.
  if (!model.has_anchors()) return {};
  std::vector<loss::HeadGrid> grids;
  for (const model::LayerGraph::Level& level : model.levels()) {
    grids.push_back({level.stride, static_cast<int64_t>(level.anchors.size())});
  }
  return [grids,
          bound = bound ? std::make_shared<const predict::LabelBound>(*bound)
                        : nullptr,
          classes = model.num_classes()](
             const std::vector<loss::LevelTargets>& targets, int64_t images,
             int64_t height, int64_t width) {
    const int64_t capacity =
        bound == nullptr
            ? 0
            : predict::most_matches(predict::most_boxes(*bound, images).boxes,
                                    grids.front().anchors);
    return loss::pack_targets(
        targets, loss::head_sizes(grids, classes, images, height, width),
        capacity);
  };
}

std::map<std::string, std::string> weights_metadata(
    const configs::RunConfig& config, const RunData& inputs, int64_t epoch) {
  std::map<std::string, std::string> metadata =
      layers::model_metadata(inputs.model, inputs.table);
  const int64_t stride =
      layers::largest_stride(layers::layer_costs(inputs.table));
  layers::describe_input(
      metadata,
      {layers::rounded_image_size(config.image_height, stride),
       layers::rounded_image_size(config.image_width, stride)},
      stride);
  metadata["format"] = "headroom-weights";
  metadata["names"] = nlohmann::json(inputs.class_names).dump();
  metadata["epoch"] = std::to_string(epoch);
  if (config.single_cls) metadata[layers::kSingleClass] = "true";
  if (!config.value_range.empty()) metadata[kValueRange] = config.value_range;
  return metadata;
}

}  // namespace headroom::step
