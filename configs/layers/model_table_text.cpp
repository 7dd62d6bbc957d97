#include "configs/layers/model_table_text.h"

#include <filesystem>

#include "configs/yaml/scalar.h"
#include "configs/yaml/shipped_files.h"
#include "parallel/base/check.h"

namespace headroom::layers {
namespace {

template <typename Items, typename Text>
std::string list_of(const Items& items, const Text& text) {
  std::string all = "[";
  for (const auto& item : items) {
    all += (all.size() == 1 ? "" : ", ") + text(item);
  }
  return all + "]";
}

std::string text_of(const ModelTable::Argument& argument) {
  if (const auto* number = std::get_if<double>(&argument)) {
    return yaml::exact_text(*number);
  }
  if (const auto* word = std::get_if<std::string>(&argument)) return *word;
  return list_of(std::get<std::vector<double>>(argument), yaml::exact_text);
}

// Is it one that the program has, whatever its name here?
bool is_shipped(const ModelTable& table) {
  for (const yaml::ShippedFile& file : yaml::shipped_files()) {
    if (file.path != "model/" + table.name + ".yaml") continue;
    return model_table_text(
               parse_model_table(std::string(file.content), file.path)) ==
           model_table_text(table);
  }
  return false;
}

}  // namespace

std::string layer_text(const ModelTable::Layer& layer) {
  const auto number = [](int value) { return std::to_string(value); };
  return "[" +
         (layer.from.size() == 1 ? number(layer.from.front())
                                 : list_of(layer.from, number)) +
         ", " + number(layer.repeats) + ", " + layer.module + ", " +
         list_of(
             layer.args,
             [](const ModelTable::Argument& each) { return text_of(each); }) +
         "]";
}

std::string activation_text(const ActivationFunction& activation) {
  switch (activation.kind) {
    case ActivationKind::kSilu:
      return "nn.SiLU()";
    case ActivationKind::kHardswish:
      return "nn.Hardswish()";
    case ActivationKind::kMish:
      return "nn.Mish()";
    case ActivationKind::kLeaky:
      break;
  }
  return "nn.LeakyReLU(" + yaml::exact_text(activation.slope) + ")";
}

std::string model_table_text(const ModelTable& table) {
  std::string text =
      "nc: " + std::to_string(table.num_classes) +
      "\ndepth_multiple: " + yaml::exact_text(table.depth_multiple) +
      "\nwidth_multiple: " + yaml::exact_text(table.width_multiple) +
      "\nchannel_multiple: " + std::to_string(table.channel_multiple) +
      "\nch: " + std::to_string(table.input_channels) +
      "\nactivation: " + activation_text(table.activation) + "\nanchors:\n";
  for (const auto& level : table.anchors) {
    std::vector<double> numbers;
    for (const auto& [width, height] : level) {
      numbers.insert(numbers.end(), {width, height});
    }
    text += "  - " + list_of(numbers, yaml::exact_text) + "\n";
  }
  text += "\n# [from, repeats, module, args]\nbackbone:\n";
  for (size_t i = 0; i < table.layers.size(); ++i) {
    if (i + 1 == table.layers.size()) text += "\nhead:\n";
    text += "  - " + layer_text(table.layers[i]) + "\n";
  }
  return text;
}

std::map<std::string, std::string> model_metadata(const std::string& model,
                                                  const ModelTable& table) {
  std::map<std::string, std::string> metadata = {{"model", model}};
  if (!is_shipped(table)) metadata["table"] = model_table_text(table);
  return metadata;
}

ModelTable table_of_weights(const std::map<std::string, std::string>& metadata,
                            const std::string& file) {
  const auto model = metadata.find("model");
  if (model == metadata.end() || model->second.empty()) {
    throw Error("weights", file + " does not say which model it holds",
                "name it, for example --cfg yolov5n");
  }
  const auto text = metadata.find("table");
  if (text == metadata.end()) return load_model_table(model->second);
  ModelTable table = parse_model_table(text->second, file + " (its table)");
  table.name = std::filesystem::path(model->second).stem().string();
  return table;
}

}  // namespace headroom::layers
