// ModelTable: a model file (configs/model/*.yaml) as plain layers.
//
// YOLOv5's format: nc, depth_multiple, width_multiple, anchors, backbone and
// head as lists of [from, repeats, module, args]; optional activation,
// channel_multiple, ch. Reading knows nothing of modules: worker/model does,
// and uses each layer's place to say what is wrong with it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "configs/layers/activation_function.h"
#include "configs/layers/anchor_list.h"
#include "configs/yaml/source_place.h"

namespace headroom::layers {

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
  ActivationFunction activation = {};  // of every block; SiLU
  AnchorList anchors;
  std::vector<Layer> layers;  // backbone, then head
};

// `text` is the content of `file`; throws Error with file:line:column.
ModelTable parse_model_table(const std::string& text, const std::string& file);

// --cfg: a path, or the name of a shipped model ("yolov5n", "yolov5n.yaml").
// Shipped tables are part of the program. Throws Error listing them.
ModelTable load_model_table(const std::string& cfg);

}  // namespace headroom::layers
