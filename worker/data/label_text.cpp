#include "worker/data/label_text.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

namespace headroom {
namespace {

std::string exact(float value) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace

std::string label_text(std::span<const BoxLabel> boxes) {
  std::string text;
  for (const BoxLabel& box : boxes) {
    text += std::to_string(box.class_index);
    for (const float value : {box.cx, box.cy, box.w, box.h}) {
      text += " " + exact(value);
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

}  // namespace headroom
