#include "parallel/planner/model_layers.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "configs/data_config.h"
#include "configs/yaml/shipped_files.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"
#include "parallel/planner/requested_plan.h"
#include "worker/pytorch_file/pytorch_file.h"

namespace headroom::planner {
namespace {

constexpr const char* kDefaultModel = "yolov5s";

// A safetensors file begins with the length of its JSON header as 8 bytes.
std::map<std::string, std::string> metadata_in_header(const std::string& file) {
  constexpr uint64_t kLongest = 100 << 20;
  std::ifstream in(file, std::ios::binary);
  std::string length_bytes(sizeof(uint64_t), '\0');
  in.read(length_bytes.data(),
          static_cast<std::streamsize>(length_bytes.size()));
  const uint64_t length = number_of_bytes(length_bytes);
  std::string header;
  if (in && length <= kLongest) {
    header.resize(length);
    in.read(header.data(), static_cast<std::streamsize>(length));
  }
  const auto json = nlohmann::json::parse(header, nullptr, false);
  if (!in || !json.is_object()) {
    throw Error("weights",
                file + " is damaged, or neither safetensors nor a checkpoint",
                "name a .safetensors file, or YOLOv5's .pt");
  }
  std::map<std::string, std::string> metadata;
  const auto said = json.find("__metadata__");
  if (said == json.end() || !said->is_object()) return metadata;
  for (const auto& [key, value] : said->items()) {
    if (value.is_string()) metadata[key] = value.get<std::string>();
  }
  return metadata;
}

}  // namespace

std::vector<std::string> smaller_models(const std::string& cfg) {
  const std::string family = cfg.starts_with("yolov8") ? "yolov8" : "yolov5";
  constexpr std::string_view kSizes = "xlmsn";
  if (!cfg.starts_with(family) || cfg.size() == family.size()) return {};
  std::vector<std::string> models;
  const std::vector<std::string> shipped = yaml::shipped_names("model");
  for (size_t at = kSizes.find(cfg[family.size()]); at < kSizes.size(); ++at) {
    std::string model = cfg;
    model[family.size()] = kSizes[at];
    const std::string name =
        model.ends_with(".yaml") ? model.substr(0, model.size() - 5) : model;
    if (std::ranges::find(shipped, name) == shipped.end()) return {};
    if (model != cfg) models.push_back(model);
  }
  return models;
}

layers::ModelTable table_of_run(const configs::RunConfig& config) {
  if (config.cfg.empty() && !config.weights.empty()) {
    return layers::table_of_weights(metadata_of_weights(config.weights),
                                    config.weights);
  }
  return layers::load_model_table(config.cfg.empty() ? kDefaultModel
                                                     : config.cfg);
}

std::map<std::string, std::string> metadata_of_weights(
    const std::string& weights) {
  require_weights(weights);
  if (!pytorch_file::is_pytorch_file(weights)) {
    return metadata_in_header(weights);
  }
  const pytorch_file::PytorchFile file(weights);
  return {{"model", file.model()}, {layers::kNetwork, file.network()}};
}

std::string model_of_run(const configs::RunConfig& config) {
  return config.cfg.empty() && !config.weights.empty()
             ? table_of_run(config).name
             : (config.cfg.empty() ? kDefaultModel : config.cfg);
}

std::optional<int64_t> num_classes_of_run(const configs::RunConfig& config) {
  if (config.single_cls) return 1;
  if (config.data.empty()) return std::nullopt;
  try {
    return static_cast<int64_t>(
        configs::load_data_config(config.data).names.size());
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<layers::LayerCost> model_layers(const configs::RunConfig& config) {
  layers::ModelTable table = table_of_run(config);
  if (const auto classes = num_classes_of_run(config)) {
    table.num_classes = *classes;
  }
  return layers::layer_costs(table);
}

std::vector<layers::LayerCost> layers_for_plan(
    const configs::RunConfig& config) {
  if (plan_needs_layers(config)) return model_layers(config);
  try {
    return model_layers(config);
  } catch (const Error&) {
    return {};
  }
}

void describe_teacher(configs::RunConfig& config) {
  if (config.teacher.empty()) return;
  if (!std::ifstream(config.teacher)) {
    throw Error("teacher", "there is no file " + config.teacher,
                "give the teacher's weights: --teacher FILE");
  }
  const auto metadata = metadata_of_weights(config.teacher);
  const layers::ModelTable table =
      layers::table_of_weights(metadata, config.teacher);
  if (metadata.contains("table")) {
    throw Error("teacher",
                config.teacher + " holds " + table.name +
                    ", which is none of the shipped models",
                "give a teacher of a shipped model, yolov5n to yolov5x6");
  }
  config.teacher_model = metadata.at("model");
  config.teacher_digest = file_digest(config.teacher);
}

}  // namespace headroom::planner
