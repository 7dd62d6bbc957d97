#include "worker/weights/recognised_network.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "configs/layers/layer_cost.h"
#include "parallel/base/text.h"

namespace headroom::weights {
namespace {

// The shipped models of a family are prefix, size, suffix: "yolov5", "n", "6u".
struct Family {
  const char *name, *prefix, *suffix;
  int64_t head;    // the number of the layer Detect
  int64_t widest;  // the first convolution of the most channels
};

constexpr const char* kSizes = "nsmlx";
constexpr Family kFamilies[] = {{"YOLOv8", "yolov8", "", 22, 7},
                                {"YOLOv5u", "yolov5", "u", 24, 7},
                                {"YOLOv5u (P6)", "yolov5", "6u", 33, 9}};
// A layer that is repeated often enough to tell the depths apart, and one of
// 512 channels, which no published size limits.
constexpr size_t kRepeated = 6, kHalfWide = 5;

class Recognition {
 public:
  explicit Recognition(const TensorShapes& shapes) : shapes_(shapes) {
    // The last layer is the head.
    for (const auto& [name, sizes] : shapes) {
      head_ = std::max(head_, layer_of(name));
    }
  }

  std::optional<RecognisedNetwork> network() const {
    const auto in_head = [this](const std::string& name) {
      return has(cat("model.", head_, ".", name));
    };
    if (in_head("linear.weight")) return {{"a network for classification"}};
    if (!in_head("cv3.0.2.weight") && !in_head("cv3.0.0.0.conv.weight")) {
      return std::nullopt;
    }
    const Family* const family = family_of();
    std::string description = in_head("one2one_cv3.0.2.weight")  ? "YOLO26"
                              : in_head("cv3.0.0.0.conv.weight") ? "YOLO11"
                              : family != nullptr                ? family->name
                                                  : "a network without anchors";
    // Masks, key points and angles have a third branch.
    if (in_head("cv4.0.2.weight")) {
      return {{description + (in_head("proto.cv1.conv.weight")
                                  ? " (segmentation)"
                                  : " (pose or oriented boxes)")}};
    }
    description += " (detection)";
    if (family == nullptr || in_head("cv3.0.0.0.conv.weight")) {
      return {{description}};
    }
    std::optional<layers::ModelTable> table = table_of(*family);
    if (!table) description += " with layers of its own";
    return {{std::move(description), std::move(table)}};
  }

 private:
  // -1 if the name has no layer.
  static int64_t layer_of(const std::string& name) {
    if (!name.starts_with("model.")) return -1;
    char* end = nullptr;
    const int64_t layer = std::strtoll(name.c_str() + 6, &end, 10);
    return *end == '.' && layer < 1000 ? layer : -1;
  }

  bool has(const std::string& name) const { return shapes_.contains(name); }
  // 0 if there is no such tensor or dimension.
  int64_t size(const std::string& name, size_t dimension) const {
    const auto found = shapes_.find(name);
    return found == shapes_.end() || found->second.size() <= dimension
               ? 0
               : found->second[dimension];
  }
  int64_t channels(int64_t layer) const {
    return size(cat("model.", layer, ".conv.weight"), 0);
  }

  const Family* family_of() const {
    const bool is_yolov5 = has("model.2.cv3.conv.weight");
    for (const Family& family : kFamilies) {
      if (family.head == head_ &&
          is_yolov5 == (std::string_view(family.prefix) == "yolov5")) {
        return &family;
      }
    }
    return nullptr;
  }

  // The factors of a size follow from the channels and repeats of some layers;
  // the number of parameters then tells whether the others agree.
  std::optional<layers::ModelTable> table_of(const Family& family) const {
    int64_t repeats = 0;
    while (has(cat("model.", kRepeated, ".m.", repeats, ".cv1.conv.weight"))) {
      ++repeats;
    }
    const int64_t half = channels(kHalfWide), whole = channels(family.widest);
    const int64_t classes = size(cat("model.", head_, ".cv3.0.2.weight"), 0);
    const int64_t inputs = size("model.0.conv.weight", 1);
    const auto is_sound = [](int64_t number) {
      return number > 0 && number <= 100'000;
    };
    if (!is_sound(repeats) || !is_sound(half) || !is_sound(whole) ||
        !is_sound(classes) || inputs < 1 || inputs > 512) {
      return std::nullopt;
    }
    layers::ModelTable table = shipped(family, 'n');
    table.num_classes = static_cast<int>(classes);
    table.input_channels = static_cast<int>(inputs);
    table.width_multiple = static_cast<double>(half) / 512;
    table.depth_multiple = static_cast<double>(repeats) /
                           static_cast<double>(table.layers[kRepeated].repeats);
    table.max_channels = static_cast<int>(std::min(
        1024.0, std::floor(static_cast<double>(whole) / table.width_multiple)));
    for (const char* letter = kSizes; *letter != '\0'; ++letter) {
      layers::ModelTable made = shipped(family, *letter);
      if (!are_equal(made.width_multiple, table.width_multiple) ||
          !are_equal(made.depth_multiple, table.depth_multiple) ||
          made.max_channels != table.max_channels ||
          made.input_channels != table.input_channels) {
        continue;
      }
      made.num_classes = table.num_classes;
      return fits(made) ? std::optional(std::move(made)) : std::nullopt;
    }
    table.name = cat(family.prefix, family.suffix, "-own");
    return fits(table) ? std::optional(std::move(table)) : std::nullopt;
  }

  static layers::ModelTable shipped(const Family& family, char letter) {
    return layers::load_model_table(cat(family.prefix, letter, family.suffix));
  }

  // A third is written as 0.33.
  static bool are_equal(double a, double b) { return std::abs(a - b) < 0.01; }

  bool fits(const layers::ModelTable& table) const {
    int64_t wanted = 0, held = 0;
    for (const layers::LayerCost& layer : layers::layer_costs(table)) {
      wanted += layer.parameters;
    }
    for (const auto& [name, sizes] : shapes_) {
      if (!name.ends_with("weight") && !name.ends_with("bias")) continue;
      if (name.ends_with(".dfl.conv.weight")) continue;
      int64_t numbers = 1;
      for (const int64_t one : sizes) numbers *= one;
      held += numbers;
    }
    return wanted == held;
  }

  const TensorShapes& shapes_;
  int64_t head_ = -1;
};

}  // namespace

std::optional<RecognisedNetwork> recognise_network(const TensorShapes& shapes) {
  return Recognition(shapes).network();
}

}  // namespace headroom::weights
