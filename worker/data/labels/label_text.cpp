#include "worker/data/labels/label_text.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

namespace headroom::labels {
namespace {

template <typename Number>
std::string exact(Number value) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace

std::string label_text(std::span<const BoxLabel> boxes,
                       std::span<const Outline> outlines) {
  std::string text;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const BoxLabel& box = boxes[i];
    text += std::to_string(box.class_index);
    if (i < outlines.size() && !outlines[i].empty()) {
      for (const OutlinePoint& point : outlines[i]) {
        text += " " + exact(point.x) + " " + exact(point.y);
      }
    } else {
      for (const float value : {box.cx, box.cy, box.w, box.h}) {
        text += " " + exact(value);
      }
    }
    text += "\n";
  }
  return text;
}

std::string data_yaml_text(const std::vector<std::string>& class_names,
                           const std::vector<std::string>& splits) {
  // JSON's quoting is YAML's too.
  std::string text = "names: " + nlohmann::json(class_names).dump() + "\n";
  for (const std::string& split : splits) {
    text += split + ": images/" + split + "\n";
  }
  return text;
}

}  // namespace headroom::labels
