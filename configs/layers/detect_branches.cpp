#include "configs/layers/detect_branches.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "configs/layers/layer_modules.h"
#include "configs/layers/table_layer.h"
#include "parallel/base/head_fields.h"
#include "parallel/base/text.h"

namespace headroom::layers {
namespace {

// The maps of all layers but the last.
std::vector<MapShape> body_shapes(const ModelTable& table,
                                  int64_t num_classes) {
  std::vector<MapShape> shapes;
  for (size_t i = 0; i + 1 < table.layers.size(); ++i) {
    std::vector<MapShape> inputs;
    for (const int input : edges_of(table, i)) {
      inputs.push_back(input == kImageEdge
                           ? MapShape{table.input_channels, 1}
                           : shapes[static_cast<size_t>(input)]);
    }
    shapes.push_back(layer_program(table, i, inputs, num_classes).output());
  }
  return shapes;
}

}  // namespace

ModelTable with_branches(const ModelTable& table, int64_t num_classes) {
  if (has_anchors(table) || table.layers.empty() ||
      table.layers.back().module != kDetectModule ||
      !table.layers.back().name.empty()) {
    return table;
  }
  const size_t head = table.layers.size() - 1;
  const std::vector<MapShape> shapes = body_shapes(table, num_classes);
  const std::vector<int> levels = edges_of(table, head);
  const int64_t finest = shapes[static_cast<size_t>(levels.front())].channels;
  const int64_t outputs = kBoxSides * kDistanceBins;
  const int64_t box_width = std::max({int64_t{16}, finest / 4, outputs});
  const int64_t class_width =
      std::max(finest, std::min<int64_t>(num_classes, 100));

  ModelTable result = table;
  ModelTable::Layer detect = std::move(result.layers.back());
  result.layers.pop_back();
  // The biases of a new detector: boxes that reach as far as others that were
  // published, and classes as rare as 5 objects in an image of 640 pixels.
  const auto class_bias = [&](size_t level) {
    const double cells =
        640.0 /
        static_cast<double>(shapes[static_cast<size_t>(levels[level])].stride);
    return std::log(5 / static_cast<double>(num_classes) / (cells * cells));
  };
  constexpr double kBoxBias = 2;
  std::vector<int> branches;
  const auto add = [&](const char* name, int64_t width, int64_t made,
                       const auto& bias) {
    for (size_t level = 0; level < levels.size(); ++level) {
      ModelTable::Layer branch;
      branch.from = {levels[level]};
      branch.module = kBranchModule;
      branch.args = {static_cast<double>(width), static_cast<double>(made),
                     bias(level)};
      branch.place = detect.place;
      branch.name = cat(head, ".", name, ".", level);
      branches.push_back(static_cast<int>(result.layers.size()));
      result.layers.push_back(std::move(branch));
    }
  };
  add("cv2", box_width, outputs, [](size_t) { return kBoxBias; });
  add("cv3", class_width, num_classes, class_bias);
  detect.from = std::move(branches);
  detect.name = std::to_string(head);
  result.layers.push_back(std::move(detect));
  return result;
}

int64_t num_layers(const ModelTable& table) {
  return std::ssize(with_branches(table, table.num_classes).layers);
}

std::string state_prefix(const ModelTable& table, size_t index) {
  const std::string& name = table.layers[index].name;
  return cat("model.", name.empty() ? std::to_string(index) : name, ".");
}

}  // namespace headroom::layers
