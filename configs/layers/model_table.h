// ModelTable: a model file (configs/model/*.yaml) as plain layers.
//
// YOLOv5's format: nc, depth_multiple, width_multiple, anchors, backbone and
// head as lists of [from, repeats, module, args]; optional activation,
// channel_multiple, ch. Modules and their arguments are checked later
// (layer_modules.h), with each layer's place in the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "configs/layers/layer_program.h"
#include "configs/yaml/yaml_tree.h"
#include "parallel/base/value_range.h"

namespace headroom::layers {

// Channels of a picture: red, green and blue.
inline constexpr int kColours = 3;

// Channels of the pictures for a model of that `ch`: a network that sees gray
// makes it of colours itself.
constexpr int picture_channels(int64_t input_channels) {
  return input_channels == 1 ? kColours : static_cast<int>(input_channels);
}

// AnchorList: the box shapes that a detector's levels match, as one line
// of text: "10,13 16,30 33,23; 30,61 62,45 59,119", width,height in pixels,
// levels by rising stride.

// The anchors of each level: width and height in pixels.
using AnchorList = std::vector<std::vector<std::pair<double, double>>>;

// Nothing where a word is no pair of numbers above 0, or levels differ in
// length. "" is no level.
std::optional<AnchorList> parse_anchor_list(std::string_view text);

// parse_anchor_list turns it into exactly `anchors` again.
std::string to_text(const AnchorList& anchors);

struct ModelTable {
  // One argument of a layer: a number, a word ("nearest", "None", "nc"), a
  // list.
  using Argument = std::variant<double, std::string, std::vector<double>>;
  struct Layer {
    std::vector<int> from;  // negative: relative to this layer
    int repeats = 1;
    std::string module;
    std::vector<Argument> args;
    yaml::SourcePlace place;
  };

  std::string name;  // "yolov5n"
  int num_classes = 80;
  double depth_multiple = 1;
  double width_multiple = 1;
  int channel_multiple = 8;
  int input_channels = 3;
  ActivationFunction activation = {};  // every block's; default SiLU
  AnchorList anchors;
  std::vector<Layer> layers;  // backbone, then head
};

// `text` is the content of `file`; throws Error with file:line:column.
ModelTable parse_model_table(const std::string& text, const std::string& file);

// --cfg: a path, or the name of a shipped model ("yolov5n", "yolov5n.yaml").
// Shipped tables are part of the program. Throws Error listing them.
ModelTable load_model_table(const std::string& cfg);

// model_table_text: a model table as the text of its file, and how a file of
// weights says which model it holds.

// A layer as the file has it.
std::string layer_text(const ModelTable::Layer& layer);

// The text of a file that parses to `table`; its head is Detect alone.
std::string model_table_text(const ModelTable& table);

// The metadata of a file of weights about its model: "model", a name as --cfg
// takes it, and where the program ships no such model "table", the text of the
// model file.
std::map<std::string, std::string> model_metadata(const std::string& model,
                                                  const ModelTable& table);

// The reverse. Throws Error where the metadata of `file` names no model.
ModelTable table_of_weights(const std::map<std::string, std::string>& metadata,
                            const std::string& file);

// The input that weights were trained with, in pixels.
struct TrainedSize {
  int64_t height = 0, width = 0;
};

// The metadata of a file of weights about its network's input: "imgsz" is
// [height, width], "stride" the model's largest, "range" that of pixel values.
void describe_input(std::map<std::string, std::string>& metadata,
                    TrainedSize size, int64_t stride);

// The "imgsz" of a file's metadata; nothing where there is none, or none that
// a network could have.
std::optional<TrainedSize> trained_size(
    const std::map<std::string, std::string>& metadata);

// The range of values that the weights were trained with (kValueRange); none: 8
// bits. Throws Error where `file` has a range that is not valid.
ValueRanges trained_ranges(const std::map<std::string, std::string>& metadata,
                           const std::string& file);

// A key of that metadata: "true" where all classes of the data set were trained
// as one (--single-cls).
inline constexpr const char* kSingleClass = "single_cls";

// "--img is 224 x 224, as FILE was trained": the note of a command that takes
// the size from the weights.
std::string trained_size_note(TrainedSize size, const std::string& file);

}  // namespace headroom::layers
