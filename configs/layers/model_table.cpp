#include "configs/layers/model_table.h"

#include <cstdint>
#include <filesystem>
#include <sstream>

#include "configs/layers/table_layer.h"
#include "configs/yaml/scalar.h"
#include "configs/yaml/shipped_files.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::layers {
namespace {

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::pair<double, double>> parse_anchor(std::string_view word) {
  const std::vector<std::string_view> sides = parts_of(word, ',');
  if (sides.size() != 2) return std::nullopt;
  const auto width = yaml::parse_double(sides[0]);
  const auto height = yaml::parse_double(sides[1]);
  if (!width || !height || *width <= 0 || *height <= 0) return std::nullopt;
  return std::pair(*width, *height);
}

}  // namespace

std::optional<AnchorList> parse_anchor_list(std::string_view text) {
  AnchorList anchors;
  if (text.empty()) return anchors;
  for (const std::string_view level : parts_of(text, ';')) {
    anchors.emplace_back();
    for (const std::string_view word : parts_of(level, ' ')) {
      if (word.empty()) continue;
      const auto anchor = parse_anchor(word);
      if (!anchor) return std::nullopt;
      anchors.back().push_back(*anchor);
    }
    if (anchors.back().empty() ||
        anchors.back().size() != anchors.front().size()) {
      return std::nullopt;
    }
  }
  return anchors;
}

std::string to_text(const AnchorList& anchors) {
  std::string text;
  for (const auto& level : anchors) {
    if (!text.empty()) text += ';';
    for (const auto& [width, height] : level) {
      if (!text.empty()) text += ' ';
      text += yaml::exact_text(width) + "," + yaml::exact_text(height);
    }
  }
  return text;
}

namespace {

// Limits above any real detector, so that a damaged file cannot request
// gigabytes.
constexpr int64_t kMostClasses = 100'000;
constexpr int64_t kMostLayers = 1'000;
constexpr int64_t kMostRepeats = 1'000;
constexpr int kMostInputChannels = 512;  // an image may have this many bands
constexpr size_t kLongestWord = 60;      // a longer word is cut in refusals

int int_in(const yaml::YamlValue& value, const std::string& key, int64_t low,
           int64_t high) {
  const int64_t number = yaml::as_int64(value, key);
  if (number < low || number > high) {
    yaml::refuse(value.place, cat(key, " is ", number),
                 cat("write a whole number from ", low, " to ", high));
  }
  return static_cast<int>(number);
}

std::string word_in(const yaml::YamlValue& value, const std::string& key) {
  std::string word = yaml::as_text(value, key);
  if (word.size() > kLongestWord) {
    yaml::refuse(value.place, key + " is " + yaml::describe(value),
                 cat("write a word of at most ", kLongestWord, " characters"));
  }
  return word;
}

double multiple(const yaml::YamlValue& value, const std::string& key) {
  const double number = yaml::as_double(value, key);
  if (!(number > 0 && number <= 100)) {
    yaml::refuse(value.place, key + " is " + yaml::exact_text(number),
                 "write a number above 0 and at most 100");
  }
  return number;
}

const yaml::YamlValue& require_list(const yaml::YamlValue& value,
                                    const std::string& key) {
  if (value.kind != yaml::YamlValue::Kind::kSequence || value.items.empty()) {
    yaml::refuse(value.place, key + " is " + yaml::describe(value),
                 "write a list here");
  }
  return value;
}

std::vector<std::pair<double, double>> read_level(
    const yaml::YamlValue& value) {
  require_list(value, "a level of anchors");
  if (value.items.size() % 2 != 0) {
    yaml::refuse(value.place,
                 cat("a level of anchors has ", value.items.size(), " numbers"),
                 "write widths and heights in pairs");
  }
  std::vector<std::pair<double, double>> anchors;
  for (size_t i = 0; i < value.items.size(); i += 2) {
    const double width = yaml::as_double(value.items[i], "an anchor's width");
    const double height =
        yaml::as_double(value.items[i + 1], "an anchor's height");
    if (!(width > 0 && height > 0)) {
      yaml::refuse(value.items[i].place,
                   "an anchor of " + yaml::exact_text(width) + " x " +
                       yaml::exact_text(height),
                   "anchors are pixels above 0");
    }
    anchors.emplace_back(width, height);
  }
  return anchors;
}

void read_anchors(const yaml::YamlValue& value, ModelTable& table) {
  if (value.kind == yaml::YamlValue::Kind::kScalar) {
    yaml::as_int64(value, "anchors");
    yaml::refuse(
        value.place,
        "anchors is a number per level (" + value.scalar +
            "), to be found from the data",
        "write them as one list of widths and heights per level: training "
        "replaces what does not fit the boxes");
  }
  require_list(value, "anchors");
  for (const yaml::YamlValue& level : value.items) {
    table.anchors.push_back(read_level(level));
    if (table.anchors.back().size() != table.anchors.front().size()) {
      yaml::refuse(
          level.place,
          cat("this level has ", table.anchors.back().size(),
              " anchors, the first has ", table.anchors.front().size()),
          "give every level the same number");
    }
  }
}

ModelTable::Argument read_argument(const yaml::YamlValue& value) {
  switch (value.kind) {
    case yaml::YamlValue::Kind::kNull:
      return "None";
    case yaml::YamlValue::Kind::kSequence: {
      std::vector<double> numbers;
      for (const yaml::YamlValue& item : value.items) {
        numbers.push_back(yaml::as_double(item, "a list's element"));
      }
      return numbers;
    }
    case yaml::YamlValue::Kind::kScalar: {
      const auto number =
          value.quoted ? std::nullopt : yaml::parse_double(value.scalar);
      if (number) return *number;
      return word_in(value, "an argument");
    }
    case yaml::YamlValue::Kind::kMapping:
      break;
  }
  yaml::refuse(value.place, "an argument is a mapping",
               "write a number, a word or a list of numbers");
}

ModelTable::Layer read_layer(const yaml::YamlValue& value) {
  if (value.kind != yaml::YamlValue::Kind::kSequence ||
      value.items.size() != 4) {
    yaml::refuse(value.place,
                 "this layer is " +
                     (value.kind == yaml::YamlValue::Kind::kSequence
                          ? cat("a list of ", value.items.size(), " elements")
                          : yaml::describe(value)),
                 "a layer is [from, repeats, module, args]");
  }
  ModelTable::Layer layer;
  layer.place = value.place;
  const yaml::YamlValue& from = value.items[0];
  if (from.kind == yaml::YamlValue::Kind::kSequence) {
    for (const yaml::YamlValue& input : require_list(from, "from").items) {
      layer.from.push_back(int_in(input, "from", -kMostLayers, kMostLayers));
    }
  } else {
    layer.from.push_back(int_in(from, "from", -kMostLayers, kMostLayers));
  }
  layer.repeats = int_in(value.items[1], "repeats", 1, kMostRepeats);
  layer.module = word_in(value.items[2], "module");
  const yaml::YamlValue& args = value.items[3];
  if (args.kind != yaml::YamlValue::Kind::kSequence) {
    yaml::refuse(args.place, "args is " + yaml::describe(args),
                 "write a list here, [] for none");
  }
  for (const yaml::YamlValue& arg : args.items) {
    layer.args.push_back(read_argument(arg));
  }
  return layer;
}

void read_layers(const yaml::YamlValue& root, const std::string& part,
                 ModelTable& table) {
  const yaml::YamlValue& layers = require_list(yaml::require(root, part), part);
  for (const yaml::YamlValue& layer : layers.items) {
    if (static_cast<int64_t>(table.layers.size()) == kMostLayers) {
      yaml::refuse(layer.place, cat("more than ", kMostLayers, " layers"),
                   "name a model file");
    }
    table.layers.push_back(read_layer(layer));
  }
}

// The size of a table with `scales`: its key in `scales`.
std::string scale_of(const yaml::YamlValue& root, const yaml::YamlValue& scales,
                     const std::string& stem) {
  const std::string sizes =
      joined(scales.entries, ", ",
             [](const yaml::YamlEntry& entry) { return entry.key; });
  if (const yaml::YamlValue* value = root.find("scale")) {
    std::string scale = word_in(*value, "scale");
    if (scales.find(scale) == nullptr) {
      yaml::refuse(value->place, "scale is " + scale, "write one of " + sizes);
    }
    return scale;
  }
  // yolov8n and yolov5n6u are the size n.
  const size_t digit = stem.find_first_of("0123456789");
  if (digit != std::string::npos) {
    const size_t end = stem.find_first_of("0123456789", digit + 1);
    std::string scale = stem.substr(digit + 1, end - digit - 1);
    if (scales.find(scale) == nullptr && scale.ends_with('u')) scale.pop_back();
    if (scales.find(scale) != nullptr) return scale;
  }
  if (scales.entries.size() == 1) return scales.entries.front().key;
  yaml::refuse(scales.place, "the file has the sizes " + sizes,
               "name one: scale: " + scales.entries.front().key);
}

void read_multiples(const yaml::YamlValue& root, ModelTable& table) {
  const yaml::YamlValue* const scales = root.find("scales");
  if (scales == nullptr) {
    table.depth_multiple =
        multiple(yaml::require(root, "depth_multiple"), "depth_multiple");
    table.width_multiple =
        multiple(yaml::require(root, "width_multiple"), "width_multiple");
    if (const yaml::YamlValue* value = root.find("max_channels")) {
      table.max_channels =
          int_in(*value, "max_channels", 1, TableLayer::kMaxChannels);
    }
    return;
  }
  if (scales->kind != yaml::YamlValue::Kind::kMapping ||
      scales->entries.empty()) {
    yaml::refuse(scales->place, "scales is " + yaml::describe(*scales),
                 "write sizes, for example n: [0.33, 0.25, 1024]");
  }
  const std::string scale = scale_of(root, *scales, table.name);
  const yaml::YamlValue& size = *scales->find(scale);
  if (size.kind != yaml::YamlValue::Kind::kSequence || size.items.size() != 3) {
    yaml::refuse(size.place, "scale " + scale + " is " + yaml::describe(size),
                 "write [depth_multiple, width_multiple, max_channels]");
  }
  table.depth_multiple = multiple(size.items[0], "depth_multiple");
  table.width_multiple = multiple(size.items[1], "width_multiple");
  table.max_channels =
      int_in(size.items[2], "max_channels", 1, TableLayer::kMaxChannels);
}

}  // namespace

ModelTable parse_model_table(const std::string& text, const std::string& file) {
  static const std::vector<std::string> known = {
      "nc",    "depth_multiple",   "width_multiple", "anchors", "backbone",
      "head",  "channel_multiple", "activation",     "ch",      "inplace",
      "scale", "scales",           "max_channels"};
  const yaml::YamlValue root = yaml::parse_yaml(text, file);
  yaml::require_mapping(root, "a model file", known);

  ModelTable table;
  table.name = std::filesystem::path(file).stem().string();
  table.num_classes = int_in(yaml::require(root, "nc"), "nc", 1, kMostClasses);
  read_multiples(root, table);
  if (const yaml::YamlValue* value = root.find("channel_multiple")) {
    table.channel_multiple = int_in(*value, "channel_multiple", 1, 1024);
  }
  if (const yaml::YamlValue* value = root.find("ch")) {
    table.input_channels = int_in(*value, "ch", 1, kMostInputChannels);
  }
  if (const yaml::YamlValue* value = root.find("activation")) {
    const std::string name = word_in(*value, "activation");
    const auto activation = parse_activation(name);
    if (!activation) {
      yaml::refuse(value->place, "activation is " + name,
                   "write one of " + known_activations());
    }
    table.activation = *activation;
  }
  read_layers(root, "backbone", table);
  read_layers(root, "head", table);
  // `Detect, [nc]` is a head without anchors.
  if (root.find("anchors") != nullptr || table.layers.back().args.size() != 1) {
    read_anchors(yaml::require(root, "anchors"), table);
  }
  return table;
}

ModelTable load_model_table(const std::string& cfg) {
  const yaml::NamedText source = yaml::file_or_shipped(cfg, "model", "model");
  return parse_model_table(source.text, source.file);
}

namespace {

template <typename Items, typename Text>
std::string list_of(const Items& items, const Text& text) {
  return "[" + joined(items, ", ", text) + "]";
}

std::string text_of(const ModelTable::Argument& argument) {
  if (const auto* number = std::get_if<double>(&argument)) {
    return yaml::exact_text(*number);
  }
  if (const auto* word = std::get_if<std::string>(&argument)) return *word;
  return list_of(std::get<std::vector<double>>(argument), yaml::exact_text);
}

// Whether `table` equals the shipped model of its name.
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

std::string model_table_text(const ModelTable& table) {
  std::string text = cat(
      "nc: ", table.num_classes,
      "\ndepth_multiple: ", yaml::exact_text(table.depth_multiple),
      "\nwidth_multiple: ", yaml::exact_text(table.width_multiple),
      table.max_channels ? cat("\nmax_channels: ", *table.max_channels) : "",
      "\nchannel_multiple: ", table.channel_multiple,
      "\nch: ", table.input_channels,
      "\nactivation: ", activation_text(table.activation),
      table.anchors.empty() ? "\n" : "\nanchors:\n");
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

std::string with_network(const std::string& file,
                         const std::map<std::string, std::string>& metadata) {
  const auto network = metadata.find(kNetwork);
  return network == metadata.end() || network->second.empty()
             ? file
             : file + ", which holds " + network->second;
}

ModelTable table_of_weights(const std::map<std::string, std::string>& metadata,
                            const std::string& file) {
  const auto model = metadata.find("model");
  if (model == metadata.end() || model->second.empty()) {
    const std::string shown = with_network(file, metadata);
    if (shown != file) {
      throw Error("weights",
                  shown +
                      ", is none of the networks that are trained here, the "
                      "detectors of YOLOv5, YOLOv5u and YOLOv8",
                  "take weights of one, for example from headroom fetch "
                  "yolov5n.pt, or name a model that it has parts of: --cfg");
    }
    throw Error("weights", file + " does not say which model it holds",
                "name it, for example --cfg yolov5n");
  }
  const auto text = metadata.find("table");
  if (text == metadata.end()) return load_model_table(model->second);
  ModelTable table = parse_model_table(text->second, file + " (its table)");
  table.name = std::filesystem::path(model->second).stem().string();
  return table;
}

void describe_input(std::map<std::string, std::string>& metadata,
                    TrainedSize size, int64_t stride) {
  metadata["imgsz"] = cat("[", size.height, ", ", size.width, "]");
  metadata["stride"] = std::to_string(stride);
  metadata["range"] = "[0, 1]";
}

ValueRanges trained_ranges(const std::map<std::string, std::string>& metadata,
                           const std::string& file) {
  const auto said = metadata.find(kValueRange);
  if (said == metadata.end()) return {};
  auto ranges = parse_value_ranges(said->second);
  if (ranges) return *std::move(ranges);
  throw Error("weights",
              file + " says " + kValueRange + " '" + said->second +
                  "', which is no range of values",
              "use other weights");
}

std::optional<TrainedSize> trained_size(
    const std::map<std::string, std::string>& metadata) {
  constexpr int64_t kMost = 65'536;
  const auto said = metadata.find("imgsz");
  if (said == metadata.end()) return std::nullopt;
  std::istringstream in(said->second);
  TrainedSize size;
  char open = 0, comma = 0, close = 0;
  in >> open >> size.height >> comma >> size.width >> close;
  const auto is_side = [](int64_t side) { return side >= 1 && side <= kMost; };
  if (!in || open != '[' || comma != ',' || close != ']' ||
      !is_side(size.height) || !is_side(size.width)) {
    return std::nullopt;
  }
  return size;
}

std::string trained_size_note(TrainedSize size, const std::string& file) {
  return cat("--img is ", size.height, " x ", size.width, ", as ", file,
             " was trained");
}

}  // namespace headroom::layers
