// ModelTable: a model file (configs/model/*.yaml) as a list of layers.
//
// YOLOv5's format: nc, depth_multiple, width_multiple, anchors, backbone and
// head as lists of [from, repeats, module, args]; optional activation,
// channel_multiple, ch. Modules and their arguments are checked later
// (layer_modules.h), with each layer's place in the file.
//
// YOLOv8's format has `scales` in place of the two multiples: for each size
// [depth_multiple, width_multiple, max_channels]. The size is named by `scale`,
// or by the file's name ("yolov8n.yaml").
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

// Channels of a colour picture.
inline constexpr int kColours = 3;

// Channels of the pictures for a model with this `ch`. A network with one input
// channel converts colours to gray itself.
constexpr int picture_channels(int64_t input_channels) {
  return input_channels == 1 ? kColours : static_cast<int>(input_channels);
}

// AnchorList: the anchors of each level, width and height in pixels, by rising
// stride. As one line of text: "10,13 16,30 33,23; 30,61 62,45 59,119".

using AnchorList = std::vector<std::vector<std::pair<double, double>>>;

// Returns nullopt if a word is not a pair of numbers above 0, or levels differ
// in length. "" has no levels.
std::optional<AnchorList> parse_anchor_list(std::string_view text);

// The text that parse_anchor_list turns back into `anchors` exactly.
std::string to_text(const AnchorList& anchors);

struct ModelTable {
  // One argument of a layer: a number, a word ("nearest", "None", "nc"), a
  // list.
  using Argument = std::variant<double, std::string, std::vector<double>>;
  struct Layer {
    std::vector<int> from;  // negative means relative to this layer
    int repeats = 1;
    std::string module;
    std::vector<Argument> args;
    yaml::SourcePlace place;
    // The layer's name in the state if that is not its index
    // (detect_branches.h).
    std::string name = {};
  };

  std::string name;  // "yolov5n"
  int num_classes = 80;
  double depth_multiple = 1;
  double width_multiple = 1;
  // Channels above it count as this many before they are scaled.
  std::optional<int> max_channels = {};
  int channel_multiple = 8;
  int input_channels = 3;
  ActivationFunction activation = {};  // of every block; default SiLU
  AnchorList anchors;                  // empty if the head has none
  std::vector<Layer> layers;           // backbone, then head
};

// `text` is the content of `file`; throws Error with file:line:column.
ModelTable parse_model_table(const std::string& text, const std::string& file);

// --cfg: a path, or the name of a shipped model ("yolov5n", "yolov5n.yaml").
// Shipped tables are part of the program. Throws Error that lists them if
// `cfg` is neither.
ModelTable load_model_table(const std::string& cfg);

// The text of a layer in a model file.
std::string layer_text(const ModelTable::Layer& layer);

// The text of a model file that parses to `table`. Its head section contains
// only the Detect layer.
std::string model_table_text(const ModelTable& table);

// The metadata about the model in a weights file: "model" is a name for --cfg;
// "table" is the text of the model file if the program does not ship the model.
std::map<std::string, std::string> model_metadata(const std::string& model,
                                                  const ModelTable& table);

// A metadata key of a PyTorch file. It is set if the file holds no detector
// that is trained here; its value describes the content for users: "YOLO11n
// (detection)".
inline constexpr const char* kNetwork = "network";

// The name of the file and, if kNetwork is set in its metadata, its content:
// "a.pt, which holds YOLO11n (detection)".
std::string with_network(const std::string& file,
                         const std::map<std::string, std::string>& metadata);

// Reads the model from the metadata of the weights file `file`. Throws Error if
// the metadata name no model.
ModelTable table_of_weights(const std::map<std::string, std::string>& metadata,
                            const std::string& file);

// The input size with which weights were trained, in pixels.
struct TrainedSize {
  int64_t height = 0, width = 0;
};

// Adds metadata about the network's input: "imgsz" is [height, width], "stride"
// is the model's largest stride.
void describe_input(std::map<std::string, std::string>& metadata,
                    TrainedSize size, int64_t stride);

// The "imgsz" of a file's metadata; nullopt if it is missing or not valid.
std::optional<TrainedSize> trained_size(
    const std::map<std::string, std::string>& metadata);

// The range of pixel values with which the weights were trained (kValueRange);
// empty for 8 bits. Throws Error if the range in `file` is not valid.
ValueRanges trained_ranges(const std::map<std::string, std::string>& metadata,
                           const std::string& file);

// A metadata key: "true" if all classes were trained as one (--single-cls).
inline constexpr const char* kSingleClass = "single_cls";

// The note of a command that takes the size from the weights: "--img is 224 x
// 224, as FILE was trained".
std::string trained_size_note(TrainedSize size, const std::string& file);

}  // namespace headroom::layers
