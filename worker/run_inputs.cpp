#include "worker/run_inputs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "configs/data_config.h"
#include "configs/model_table_text.h"
#include "configs/row_cost.h"
#include "configs/scalar.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "worker/data/image_bands.h"
#include "worker/data/image_weights.h"
#include "worker/data/synthetic.h"
#include "worker/loss/target_assignment.h"
#include "worker/model/weights_anchors.h"
#include "worker/model/weights_file.h"

namespace headroom {
namespace {

constexpr const char* kDefaultModel = "yolov5s";

// Copy-paste is part of mosaics.
bool pastes_objects(const RunConfig& config) {
  return config.command == "train" && config.hyp.copy_paste > 0 &&
         config.hyp.mosaic > 0 && !config.rect;
}

Dataset read_split(const DataConfig& data, Split split, const RunConfig& config,
                   RunInputs& inputs) {
  IndexOptions options;
  options.limits.bands = bands_of_images(inputs.table.input_channels);
  options.single_cls = config.single_cls;
  options.num_threads = std::max<int64_t>(1, config.loader_threads);
  options.keep_outlines = split == Split::kTrain && pastes_objects(config);
  IndexedDataset indexed = index_dataset(data, split, options);
  inputs.reports.push_back(std::move(indexed.report));
  return std::move(indexed.dataset);
}

void read_model(const RunConfig& config, RunInputs& inputs) {
  if (config.cfg.empty() && !config.weights.empty()) {
    const auto metadata = read_weights_metadata(config.weights);
    inputs.table = table_of_weights(metadata, config.weights);
    inputs.model = metadata.at("model");
    return;
  }
  inputs.model = config.cfg.empty() ? kDefaultModel : config.cfg;
  inputs.table = load_model_table(inputs.model);
}

// Those that the run is defined with; else those of weights without --cfg.
void use_anchors(const RunConfig& config, ModelTable& table) {
  if (config.anchors.empty()) {
    if (!config.cfg.empty() || config.weights.empty()) return;
    table.anchors =
        anchors_in_weights(config.weights, table).value_or(table.anchors);
    return;
  }
  AnchorList anchors = parse_anchor_list(config.anchors).value_or(AnchorList());
  const auto count = [](const AnchorList& list) {
    return std::to_string(list.size()) + " levels of " +
           std::to_string(list.empty() ? 0 : list.front().size());
  };
  if (count(anchors) != count(table.anchors)) {
    throw Error("config",
                "anchors has " + count(anchors) + ", but " + table.name +
                    " has " + count(table.anchors),
                "write as many, or leave anchors out");
  }
  table.anchors = std::move(anchors);
}

// A window's boxes are cut, outlines are not.
void check_outlines(const RunConfig& config, const Dataset& training) {
  const int64_t polygons = training.num_polygons();
  if (!config.random_crop || !pastes_objects(config) || polygons == 0) return;
  throw Error("config",
              "--random-crop cuts boxes, but not the outlines of " +
                  std::to_string(polygons) + " labels that hyp.copy_paste " +
                  exact_text(config.hyp.copy_paste) + " needs",
              "add --set hyp.copy_paste=0");
}

}  // namespace

Split split_of(const RunConfig& config) {
  if (config.task == "train") return Split::kTrain;
  return config.task == "test" ? Split::kTest : Split::kVal;
}

RunInputs read_inputs(const RunConfig& config) {
  RunInputs inputs;
  read_model(config, inputs);
  if (config.command == "train") use_anchors(config, inputs.table);
  if (config.synthetic_input) {
    for (int64_t i = 0; i < kSyntheticClasses; ++i) {
      inputs.class_names.push_back("class" + std::to_string(i));
    }
    return inputs;
  }
  if (config.data.empty()) {
    throw Error("data", "no data set was given", "give one with --data FILE");
  }
  const DataConfig data = load_data_config(config.data);
  if (config.command == "val") {
    inputs.validation = read_split(data, split_of(config), config, inputs);
  } else {
    inputs.training = read_split(data, Split::kTrain, config, inputs);
    check_outlines(config, *inputs.training);
    inputs.validation = read_split(data, Split::kVal, config, inputs);
  }
  inputs.class_names = inputs.validation->class_names();
  return inputs;
}

std::string note_on_copy_paste(const RunConfig& config,
                               const RunInputs& inputs) {
  if (config.hyp.copy_paste <= 0 || !inputs.training) return "";
  const std::string what = "hyp.copy_paste " +
                           exact_text(config.hyp.copy_paste) +
                           " changes nothing: ";
  if (!pastes_objects(config)) {
    return what + "it is part of mosaics, and there are none";
  }
  if (inputs.training->num_polygons() > 0) return "";
  return what + "no label of train is a polygon";
}

std::string note_on_colours(const RunConfig& config, const RunInputs& inputs) {
  const int bands = bands_of_images(inputs.table.input_channels);
  if (config.command != "train" || bands == kColours) return "";
  const std::pair<const char*, double> asked[] = {{"hsv_h", config.hyp.hsv_h},
                                                  {"hsv_s", config.hyp.hsv_s},
                                                  {"hsv_v", config.hyp.hsv_v},
                                                  {"gray", config.hyp.gray},
                                                  {"clahe", config.hyp.clahe}};
  std::string names;
  for (const auto& [name, value] : asked) {
    if (value <= 0) continue;
    names += (names.empty() ? "hyp." : ", hyp.") + std::string(name) + " " +
             exact_text(value);
  }
  if (names.empty()) return "";
  return names + " change nothing: they are about red, green and blue, and " +
         "the images have " + std::to_string(bands) + " bands (ch)";
}

std::string note_on_image_weights(const RunConfig& config,
                                  const RunInputs& inputs) {
  if (!config.image_weights || !inputs.training) return "";
  const int64_t images = images_without_labels(*inputs.training);
  if (images == 0) return "";
  return "--image-weights never draws images without labels, " +
         std::to_string(images) + " of " +
         std::to_string(inputs.training->size()) + " here";
}

at::ScalarType scalar_type_of(Precision precision) {
  return precision == Precision::kFp64 ? at::kDouble : at::kFloat;
}

at::ScalarType map_type_of(Precision precision) {
  if (precision == Precision::kBf16) return at::kBFloat16;
  if (precision == Precision::kFp16) return at::kHalf;
  return scalar_type_of(precision);
}

LoaderOptions loader_options(const RunConfig& config, const LayerGraph& model) {
  LoaderOptions options;
  options.seed = config.seed;
  options.stride = model.max_stride();
  options.bands = bands_of_images(model.input_channels());
  options.image_height =
      rounded_image_size(config.image_height, options.stride);
  options.image_width = rounded_image_size(config.image_width, options.stride);
  options.hyp = config.hyp;
  options.random_crop = config.random_crop;
  options.num_threads = config.loader_threads;
  options.begin_thread = &CountingAllocator::count_as_host_memory;
  options.host_memory_limit_bytes = config.host_memory_limit;
  options.assign = [levels = model.levels(), threshold = config.hyp.anchor_t,
                    type = scalar_type_of(config.precision)](
                       const std::vector<LabelRow>& labels, int64_t height,
                       int64_t width) {
    std::vector<LevelGrid> grids;
    for (const LayerGraph::Level& level : levels) {
      LevelGrid grid{height / level.stride, width / level.stride, {}};
      for (const auto& [w, h] : level.anchors) {
        grid.anchors.emplace_back(w / static_cast<double>(level.stride),
                                  h / static_cast<double>(level.stride));
      }
      grids.push_back(std::move(grid));
    }
    return assign_targets(labels, grids, threshold, type);
  };
  return options;
}

std::map<std::string, std::string> weights_metadata(const RunInputs& inputs,
                                                    int64_t epoch) {
  std::map<std::string, std::string> metadata =
      model_metadata(inputs.model, inputs.table);
  metadata["format"] = "headroom-weights";
  metadata["names"] = nlohmann::json(inputs.class_names).dump();
  metadata["epoch"] = std::to_string(epoch);
  return metadata;
}

}  // namespace headroom
